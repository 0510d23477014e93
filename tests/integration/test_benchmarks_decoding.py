"""What `make bench` and `make gpu-check` measure decoding with."""

import pytest

from benchmarks import decode

ONE_PROCESS = decode.Configuration(threads=1, workers=1)


@pytest.mark.slow
def test_our_search_with_fairseqs_weights_finds_what_fairseqs_finds(tiny_data_bin, tmp_path):
    """Also: a checkpoint to decode can be made from a data-bin alone."""
    checkpoint = decode.train_checkpoint(tmp_path, str(tiny_data_bin), "cpu", 1, "trial", 2)
    systems = {name: decode.SYSTEMS[name] for name in ("fairseq", "ours")}
    teams = decode.start_teams(systems, "cpu", str(tiny_data_bin), checkpoint, 4, [ONE_PROCESS])
    hypotheses = {}
    for name, team in teams.items():
        team.wait()
        hypotheses[name] = team.translate(ONE_PROCESS, 2, 4)["hypotheses"]
        team.end()
    assert len(hypotheses["ours"]) == 4
    assert hypotheses["ours"] == hypotheses["fairseq"]
