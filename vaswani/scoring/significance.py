"""Whether one system is better than another: sacreBLEU's paired bootstrap resampling.

Sentences are drawn with replacement, the same for both systems; p is the share of draws whose
difference is further from the mean difference than the observed one (Koehn, 2004). A small p
says that another test set of the same kind would hardly reverse the order.
"""

from typing import Any


def compare(
    metrics: dict[str, Any], this: list[str], other: list[str], references: list[str]
) -> dict[str, Any]:
    """Scores of two systems by each metric, 95% intervals and p.

    sacreBLEU's own defaults: 1,000 resamples, seed 12345 or $SACREBLEU_SEED.

    Args:
        metrics: sacreBLEU's objects, by the keys to use in the result
        this, other, references: sentences, line by line
    """
    from sacrebleu.significance import PairedTest

    test = PairedTest([("this", this), ("other", other)], metrics, [references], test_type="bs")
    signatures, scores = test()
    rows = {}
    # results come under sacreBLEU's metric names, in the order of ``metrics``
    for key, name in zip(metrics, test.metrics, strict=True):
        results: list[Any] = list(scores[name])
        first, second = results
        # equal scores differ by 0, and no draw differs by less; sacreBLEU counts only draws that
        # differ by more, so two equal systems would get its smallest p
        p = 1.0 if first.score == second.score else second.p_value
        rows[key] = {
            "score": round(first.score, 2),
            "interval": round(float(first.ci), 2),
            "other_score": round(second.score, 2),
            "other_interval": round(float(second.ci), 2),
            "p": round(p, 4),
            "signature": str(signatures[name]),
        }
    seed = signatures[name].info["seed"]
    return {"resamples": test.n_samples, "seed": seed, "metrics": rows}
