"""What only speed needs. Each file says which readable form it equals:

    linear.py        torch.nn.Linear
    dropout.py       torch's dropout, in distribution
    attention.py     ``readable_attention`` of ../attention.py
    chunked_loss.py  ``label_smoothed_loss`` of ../loss.py
    malloc.py        the allocator as it is; no result shows it
    processor.py     nothing is computed: which of them is quick on which processor

``--attention-impl readable`` computes with none of the first four.
"""
