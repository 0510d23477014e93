"""Files around the paper's model: model folders, and text of Moses' tokens.

    packed.py           reads and writes the folders that `vaswani pack` makes
    folder_table.py     the sections of their config.json, and their types
    typed.py            tables from files, with the types of their values checked
    sums.py             hashes of files
    moses/              detokenisation of Moses' tokens, with fewer wrong spaces

Only the parameters in `packed.py` need torch.
"""
