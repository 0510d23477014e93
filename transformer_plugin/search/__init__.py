"""Beam search (section 6.1) for the task ``vaswani_translation``, in place of fairseq's.

    generator.py      what fairseq calls: the options, and the model in the search
    beam_search.py    the loop: k hypotheses of each sentence grow by one token per step
    scoring_rules.py  how a hypothesis is scored, when it is finished, and when the search stops
    history.py        what each step considered and chose, and the hypotheses read from that

The cache that the decoder keeps between the steps is in ../cache.py.
"""
