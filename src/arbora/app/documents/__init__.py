"""Documents of a user, from files, folders or memory.

==================  ================================================================================
`collection`        `Documents`: texts or rows of numbers with ids, labels and further fields
`source`            `Source`: a file or folder and how to read it; documents one by one
`reader`            `read_documents`: all documents of a source
`duplicates`        documents with the same text
`checks`            warnings about the documents of a test
`labels`            the tree of the labels; checks of labels
`times`             times of documents
==================  ================================================================================
"""

from arbora.app.documents.collection import Documents, join_documents
from arbora.app.documents.reader import read_documents, read_labelled
from arbora.app.documents.source import FORMATS, STDIN, Source, guess_format, iter_documents, make_source

__all__ = [
    "FORMATS",
    "STDIN",
    "Documents",
    "Source",
    "guess_format",
    "iter_documents",
    "join_documents",
    "make_source",
    "read_documents",
    "read_labelled",
]
