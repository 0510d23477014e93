"""Quicker forms. Each file says which readable form it is equivalent to:

    linear.py        torch.nn.Linear
    dropout.py       torch's dropout, in distribution; also the model's one dropout (5.4)
    attention.py     ``readable_attention`` of ../attention.py
    chunked_loss.py  ``label_smoothed_loss`` of ../loss.py
    malloc.py        the allocator's defaults; no result changes
    processor.py     computes nothing; says which form is quick on which processor

With ``--attention-impl readable`` the first four compute as those readable forms do, or are unused.
"""
