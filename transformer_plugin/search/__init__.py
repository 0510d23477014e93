"""Beam search (section 6.1): of the task ``vaswani_translation``, in place of fairseq's.

    generator.py      what fairseq calls: the options, and the model in the search
    beam_search.py    the loop: k hypotheses of each sentence grow by one token a step
    scoring_rules.py  what a hypothesis scores, when it is finished, and when the search stops
    history.py        what each step looked at and chose, and the hypotheses read off that

The cache that the decoder keeps between the steps is in ../cache.py.
"""
