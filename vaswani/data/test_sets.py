"""The test sets of WMT 2014 and others, as sacreBLEU keeps them: names, sizes, files."""

from pathlib import Path

from vaswani.common.errors import UserError

#: sacreBLEU's names; the first is the paper's test set, the other its development set
NEWSTEST2014, NEWSTEST2013 = "wmt14/full", "wmt13"
#: by their names in recipes
BY_NAME = {"newstest2014": NEWSTEST2014, "newstest2013": NEWSTEST2013}
#: sentences per set: a file of another length is not that set
SENTENCES = {NEWSTEST2014: 3003, NEWSTEST2013: 3000}


def files_of(name: str, pair: str, instead: str) -> tuple[Path, Path]:
    """The source and the reference of a test set, from sacreBLEU's cache or downloaded by it.

    Args:
        name: sacreBLEU's name
        pair: such as ``en-de``
        instead: what the user can do if it is unavailable

    Raises:
        UserError: it is unavailable.
    """
    import sacrebleu

    try:
        source = sacrebleu.get_source_file(name, pair)
        return Path(source), Path(sacrebleu.get_reference_files(name, pair)[0])
    except (Exception, SystemExit) as error:  # it exits if a download fails
        raise UserError(f"sacreBLEU could not give {name} {pair} ({error}): {instead}") from None
