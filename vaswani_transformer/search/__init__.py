"""Search for translations (section 6.1). In the order in which to read it:

simple.py         greedy decoding and beam search without a cache, a few lines each
incremental.py    the same with a cache
repeats.py        forbids repeated n-grams, on request
loop.py           k hypotheses of each sentence grow by one token per step
scoring_rules.py  how a hypothesis is scored, when it is finished, and when the search stops
history.py        the candidates of each step; the hypotheses reconstructed from them, and scored
"""

from ..search_options import SearchOptions  # noqa: F401
from .incremental import beam_search, search  # noqa: F401
from .simple import greedy_decode, simple_beam_search  # noqa: F401
