"""Types and ids as in fairseq's dictionaries."""

from pathlib import Path

import pytest

from vaswani_transformer import Vocabulary


def load(folder: Path, text: str) -> Vocabulary:
    path = folder / "dict.en.txt"
    path.write_bytes(text.encode())
    return Vocabulary.load(path)


def test_words_become_ids_and_come_back(tmp_path: Path) -> None:
    """Ids follow the four special ones; unknown words are 3; ends and pads have no word."""
    vocabulary = load(tmp_path, "a@@ 5\nb 3\n")
    assert vocabulary.encode(["b", "a@@", "zebra"]) == [5, 4, 3, 2]
    assert vocabulary.decode([1, 5, 4, 3, 2]) == ["b", "a@@", "<unk>"]
    assert len(vocabulary) == 6 and vocabulary[4] == "a@@"


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """A type may hold what other programs take for the end of a line, or fairseq's mark."""
    odd = ["\u2028", "\x85", "x\u00a0y", "#fairseq:overwrite"]
    vocabulary = load(tmp_path, "".join(f"{name} 1\n" for name in odd))
    assert vocabulary.types[4:] == odd
    assert load(tmp_path, "a 1 #fairseq:overwrite\n").types[4:] == ["a"]


def test_a_special_type_may_be_in_the_text_as_fairseq_reads_it(tmp_path: Path) -> None:
    """Encoded as the new id; what the vocabulary lacks stays 3, and so does its text."""
    text = "a 5\n<unk> 3 #fairseq:overwrite\na 1 #fairseq:overwrite\n"
    vocabulary = load(tmp_path, text)
    assert vocabulary.types[4:] == ["a", "<unk>", "a"]
    assert vocabulary.encode(["<unk>", "a", "zebra"]) == [5, 6, 3, 2]
    assert vocabulary.decode([3, 4, 5, 6]) == ["<unk>", "a", "<unk>", "a"]


@pytest.mark.parametrize("text", ["a\n", "a -1\n", "a 1\na 2\n", "</s> 1\n", " 1\n"])
def test_what_is_no_dictionary_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dict.en.txt"):
        load(tmp_path, text)
