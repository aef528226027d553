"""Why a model was not loaded."""


class ModelLoadError(Exception):
    """The model can't be loaded, or not so that its results would be right; the message says why."""
