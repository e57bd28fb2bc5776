"""Data: readers of the field's formats, real sets by name, generators with known truth, a built-in corpus."""

from arbora.datasets.arff import HmcData, read_hmc_arff
from arbora.datasets.base import Dataset, Split
from arbora.datasets.cluto import ClutoData, read_cluto
from arbora.datasets.errors import DataFormatError
from arbora.datasets.load import available, data_folder, load
from arbora.datasets.python_docs import load_python_docs
from arbora.datasets.svmlight import SvmlightData, read_svmlight, read_xmlc
from arbora.datasets.synthetic_text import TextTruth, make_hierarchical_text
from arbora.datasets.synthetic_vmf import VMFTruth, make_hierarchical_vmf, make_temporal_vmf, make_vmf_mixture
from arbora.datasets.texts import FolderData, TextData, read_csv, read_folder, read_jsonl

__all__ = [
    "ClutoData",
    "DataFormatError",
    "Dataset",
    "FolderData",
    "HmcData",
    "Split",
    "SvmlightData",
    "TextData",
    "TextTruth",
    "VMFTruth",
    "available",
    "data_folder",
    "load",
    "load_python_docs",
    "make_hierarchical_text",
    "make_hierarchical_vmf",
    "make_temporal_vmf",
    "make_vmf_mixture",
    "read_cluto",
    "read_csv",
    "read_folder",
    "read_hmc_arff",
    "read_jsonl",
    "read_svmlight",
    "read_xmlc",
]
