"""The paper's results: each file has its ``Options`` and ``run``, as a verb's file has."""

#: the comparisons of small models
SMALL_TABLES = ("table2", "table2-demo", "table2-tatoeba", "equal-updates", "table3")
#: result → its file; those that have none are in ``reproduction.py``
FILES = {"table1": "table1", **dict.fromkeys(SMALL_TABLES, "small_tables")}
