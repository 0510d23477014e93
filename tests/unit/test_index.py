"""An index of binarised text: any damage is noticed before fairseq trusts it."""

import struct

import pytest

from tests.properties import given, some
from vaswani.common.errors import UserError
from vaswani.data.read_data_bin import check_text, read_index

TEXT = [[4, 5, 2], [6, 2], [2], [7, 8, 9, 2]]
#: of each sentence, in bytes: two for a token
OFFSETS = [0, 6, 10, 12]
INDEX = struct.pack("<9sQBQ4i4q", b"MMIDIDX\0\0", 1, 8, 4, *map(len, TEXT), *OFFSETS)
TOKENS = struct.pack("<10H", *sum(TEXT, []))


def written(folder, index=INDEX, tokens=TOKENS) -> str:
    """Write the two files, and return their prefix."""
    (folder / "text.idx").write_bytes(index)
    (folder / "text.bin").write_bytes(tokens)
    return str(folder / "text")


def test_an_index_is_read(tmp_path):
    prefix = written(tmp_path)
    assert read_index(prefix).sizes.tolist() == [3, 2, 1, 4]
    assert check_text(prefix, 10, "dict") == (0, 6)


@given(some.integers(0, len(INDEX) - 1), some.integers(1, 255))
def test_any_changed_byte_of_an_index_is_noticed(tmp_path, place, change):
    damaged = bytearray(INDEX)
    damaged[place] ^= change
    with pytest.raises(UserError, match=r"text\.idx"):
        read_index(written(tmp_path, index=bytes(damaged)))


@given(some.data())
def test_any_cut_or_added_byte_is_noticed(tmp_path, data):
    index = data.draw(some.sampled_from([INDEX[: data.draw(some.integers(0, 73))], INDEX + b"0"]))
    tokens = data.draw(
        some.sampled_from([TOKENS[: data.draw(some.integers(0, 19))], TOKENS + b"0"])
    )
    for damage in ({"index": index}, {"tokens": tokens}):
        with pytest.raises(UserError, match=r"text\.idx"):
            read_index(written(tmp_path, **damage))


def test_a_token_beyond_the_dictionary_is_noticed(tmp_path):
    with pytest.raises(UserError, match="dict"):
        check_text(written(tmp_path), 9, "dict")
