"""`TextClassifier`: classify raw texts, with features and model chosen by cross-validation.

=============  ====================================================
`estimator`    the estimator: fit and prediction
`recipes`      how texts become rows, by name
`labels`       labels of any kind
`choice`       the choice of the features and of the model
`content`      the methods that describe, show, save and load it
=============  ====================================================
"""

from arbora.app.classifiers import AUTO
from arbora.app.text_choice import Recipe
from arbora.app.text_classifier.estimator import TextClassifier

__all__ = ["AUTO", "Recipe", "TextClassifier"]
