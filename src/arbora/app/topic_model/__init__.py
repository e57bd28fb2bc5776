"""`TopicModel`: topics of raw texts, found, described, edited, shown and saved.

======================  ============================================================================
`estimator`             the estimator: fit, prediction, words
`edits`                 merges and splits as functions, and `EditedTopics`, a model of rows with edits
`editing`, `content`    the methods of the estimator that edit it, and that show and save it
`stored_edits`          edits as data: files that the page exports, and edited model folders
`choice`                the number of topics in words: asked for, found, and how it was chosen
`given`                 texts and times as users give them
======================  ============================================================================
"""

from arbora.app.topic_model.estimator import AUTO, MODELS, TopicModel

__all__ = ["AUTO", "MODELS", "TopicModel"]
