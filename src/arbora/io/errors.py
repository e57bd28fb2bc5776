"""The exception for model files."""


class ModelFileError(ValueError):
    """A folder is not a model, is damaged, or cannot be read by this version of Arbora.

    Examples
    --------
    >>> import tempfile
    >>> from arbora.io import ModelFileError, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         load(folder)
    ...     except ModelFileError as error:
    ...         print("manifest.json" in str(error))
    True
    """
