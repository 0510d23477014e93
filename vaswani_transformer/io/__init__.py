"""What is around the paper's model: files of a model folder, and text of Moses' tokens.

    packed.py           reads, and writes, what `vaswani pack` makes
    folder_table.py     the sections of its config.json, and their types
    typed.py            tables from files, each value of its type
    sums.py             hashes of files
    moses/              text of Moses' tokens, with what its detokeniser leaves apart

Only the parameters in `packed.py` need torch.
"""
