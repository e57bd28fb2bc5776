"""`TextClassifier`: an estimator that files raw texts into classes.

>>> from arbora import TextClassifier
>>> texts = ["fish swim in the sea", "ships sail the sea", "old trees grow", "trees and grass"] * 5
>>> labels = ["sea/fish", "sea/ships", "land", "land"] * 5
>>> model = TextClassifier().fit(texts, labels)
>>> model.predict(["a fish", "a tree"]).tolist()
['sea/fish', 'land']
>>> model.predict_path(["a fish"])
[['root', 'sea', 'sea/fish']]
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from arbora.app.classifiers import AUTO, COUPLED, FLAT, ClassifierOptions, make_classifier
from arbora.app.contents.classifier import classifier_content, typical_words_of_labels, words_with_weight
from arbora.app.contents.nodes import About, Subject
from arbora.app.documents import Documents, as_documents
from arbora.app.evaluation import trial_of
from arbora.app.folder import Content
from arbora.app.labels import tree_of_labels, tree_of_model
from arbora.app.text_choice import (
    SAFE,
    GivenRows,
    Labels,
    Recipe,
    Source,
    SplitTexts,
    choose_for_texts,
    parse_recipe,
)
from arbora.app.text_model import TextModel
from arbora.app.text_rows import feature_names, fit_rows, text_language, warn_of_script
from arbora.arrays import Array, Matrix
from arbora.core.estimator import require_y
from arbora.core.running import outside_blocks
from arbora.datasets.readers.records import join_labels
from arbora.structure import Hierarchy
from arbora.text import LtcVectorizer

DECIDING, TYPICAL = "deciding", "typical"


class TrainingRows(NamedTuple):
    """Rows of the training texts, the vectorizer that made them, what was chosen, and the times of the steps."""

    X: Any
    vectorizer: LtcVectorizer | None  # None for rows of numbers
    choice: dict[str, Any]  # see `TextClassifier.choice_`
    features: str | None  # name of the features; None for those of a vectorizer, and for rows of numbers
    seconds: dict[str, float]


class TextClassifier(TextModel, ClassifierMixin, BaseEstimator):
    """Classify texts: features and model are chosen by cross-validation on the training texts.

    Parameters
    ----------
    structure : Hierarchy, "auto", "flat" or None
        Tree or DAG of the labels. "auto" or None: labels that are paths, such as "sea/fish", make a tree; other
        labels are flat. "flat": a slash has no meaning. The classes are the labels as given in all cases: the tree
        adds probabilities of its inner nodes, `predict_path` and `predict_backoff`, and models that use it.
    model : "auto", str or classifier
        "auto": the best of flat linear models and, with a structure, of models that use it. A name of
        `arbora.app.classifiers.MODELS`, or an unfitted classifier of `arbora.classify`: a clone of it is trained with
        its own parameters, and with the structure of the labels unless it has one.
    features : "auto", str, TextOptions or vectorizer
        "auto": the best of words or stems, with or without stop words, bigrams and character n-grams. A name such as
        "words+bigrams", see `arbora.app.text_choice`; or an unfitted `LtcVectorizer`, which is cloned.
    language : str
        Language of stems; "none": words as they are. "auto": English if the texts look English. Not used with a
        vectorizer or `TextOptions`, which have their own.
    C : float, optional
        Cost of a training error; by default chosen, or that of the model.
    coupling : float, optional
        How much classes share with their neighbours in the structure; by default chosen, or that of the model. With a
        number, "auto" is the model that has a coupling, "recursive-svm".
    n_jobs : int, optional
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None
    verbose : int
        1 shows progress bars on a terminal, 2 always; 2 also prints what was chosen.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted: columns of `predict_proba` and `decision_function`.
    nodes_ : ndarray
        Names of the nodes: columns of `predict_node_proba`.
    hierarchy_ : Hierarchy
        The structure; without one, a root for each class.
    choice_ : dict
        What was chosen ("features", "model", "C", "coupling"), "why" (lines of text), and the "candidates" with
        scores. Empty if nothing was to choose, or if there are fewer than 30 texts.
    seconds_ : dict
        Time of the parts of the fit: "features", "choice", "model" and "words".
    vectorizer_ : fitted vectorizer, or None for rows of numbers
    estimator_ : fitted classifier of rows

    Examples
    --------
    >>> from arbora import TextClassifier
    >>> model = TextClassifier().fit(["good film", "fine film", "bad film", "dull film"] * 5, [1, 1, 0, 0] * 5)
    >>> model.predict(["a fine day", "a dull day"])
    array([1, 0])
    >>> {label: sorted(words) for label, words in model.top_words(2).items()}
    {0: ['bad', 'dull'], 1: ['fine', 'good']}
    """

    _kind = "text classifier"
    _command = "arbora classify train"

    def __init__(
        self,
        structure: Any = None,
        model: Any = AUTO,
        features: Any = AUTO,
        *,
        language: str = AUTO,
        C: float | None = None,
        coupling: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.model = model
        self.features = features
        self.language = language
        self.C = C
        self.coupling = coupling
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, texts: Any, y: Any = None) -> Self:
        """Choose features and model, and train.

        Models are trained for two purposes. To choose, candidates are trained coarsely on two thirds of a sample of
        the texts; together they take at most about three times as long as a flat model of all texts. Then the chosen
        model is trained on all texts; its own `fit` says how often, for its cost and its probabilities.

        Parameters
        ----------
        texts : sequence of str or Documents
        y : one label per text, a list of label lists, or an indicator matrix
            By default the labels of the documents.

        Returns
        -------
        self
        """
        documents = as_documents(texts)
        y = documents.y if y is None else y
        require_y(self, y, "it learns from labelled texts")
        labels = Labels(y)
        structure = self._find_structure(labels)
        with outside_blocks():  # a checkpoint belongs to one fit, and here are several
            rows = self.training_rows(documents, labels, structure)
            start = time.perf_counter()
            estimator = self._make_estimator(rows.choice, labels, structure).fit(rows.X, y)
        trained = time.perf_counter()
        names = feature_names(documents, rows.vectorizer, estimator.n_features_in_)
        typical = typical_words_of_labels(Subject(estimator, rows.X, documents, names, rows.vectorizer), y)
        spent = {"model": trained - start, "words": time.perf_counter() - trained}
        self.choice_, self.vectorizer_, self.estimator_ = rows.choice, rows.vectorizer, estimator
        self.typical_, self.feature_names_ = typical, names if documents.texts is None else None
        self.seconds_ = {**rows.seconds, **spent}
        if self.verbose > 1 and self.choice_:
            print(self.choice_text())
        return self

    def training_rows(
        self, documents: Documents, labels: Labels, structure: Hierarchy | None
    ) -> TrainingRows:
        """Choose what is to choose, and make the rows that `fit` trains on; the classifier is not changed."""
        if not len(documents):
            raise ValueError("no texts: give at least one text of each class")
        start = time.perf_counter()
        self.check(labels, structure)
        source = self._split(documents)
        split = time.perf_counter()
        choice = choose_for_texts(
            source,
            labels,
            structure,
            self._recipe({}),
            free_features=_is_auto(self.features),
            free_model=_is_auto(self._model()),
            C=self.C,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
        )
        chosen = time.perf_counter()
        recipe = self._recipe(choice)
        vectorizer, X = source.fit(recipe)
        features = recipe.name if isinstance(source, SplitTexts) else None
        seconds = {"features": split - start + time.perf_counter() - chosen, "choice": chosen - split}
        return TrainingRows(X, vectorizer, choice, features, seconds)

    def check(self, labels: Labels, structure: Hierarchy | None) -> None:
        """Raise an error if the parameters do not fit together, or do not fit the labels, before the long work."""
        self._make_estimator({}, labels, structure)
        recipe = self._recipe({})
        if isinstance(self.features, str) and self.language != AUTO:
            recipe._replace(stems=True).vectorizer(self.language).rules()  # refuses an unknown language

    def _find_structure(self, labels: Labels) -> Hierarchy | None:
        if isinstance(self.structure, str) and self.structure not in (FLAT, AUTO):
            raise ValueError(f'structure must be a Hierarchy, "auto", "flat" or None, got {self.structure!r}')
        if self.structure is not None and not isinstance(self.structure, str):
            tree: Hierarchy = self.structure
            return tree
        return None if self.structure == FLAT else tree_of_paths(labels)

    def _split(self, documents: Documents) -> Source:
        """Split the texts for recipes; with a given vectorizer, and for rows of numbers, make the rows."""
        texts = documents.texts
        if texts is None or not isinstance(self.features, str):
            return GivenRows(*fit_rows(documents, self.features))
        language = text_language(texts) if self.language == AUTO else self.language
        warn_of_script(texts, language)
        return SplitTexts(texts, language)

    def _recipe(self, choice: Mapping[str, Any]) -> Recipe:
        """Return the features by name, as given or as chosen; plain words for other features."""
        name = SAFE.name if _is_auto(self.features) or not isinstance(self.features, str) else self.features
        return parse_recipe(choice.get("features", name))

    def _model(self) -> Any:
        """Return the model, or the one that a given coupling stands for."""
        return COUPLED[0] if _is_auto(self.model) and self.coupling is not None else self.model

    def trained_options(self, choice: Mapping[str, Any] | None = None) -> ClassifierOptions | None:
        """Return what is trained, as given or as chosen (by default: by the fit); None if an estimator is given."""
        if not isinstance(self.model, str):
            return None
        choice = self.choice_ if choice is None else choice
        name, C, coupling = self._model(), self.C, self.coupling
        if _is_auto(name):
            name, C, coupling = choice.get("model", FLAT), choice.get("C", C), choice.get("coupling")
        return ClassifierOptions(name, C, coupling, self.n_jobs, self.random_state)

    def _make_estimator(self, choice: Mapping[str, Any], labels: Labels, structure: Hierarchy | None) -> Any:
        """Make the unfitted classifier of rows, as given or as chosen."""
        options = self.trained_options(choice)
        if options is not None:
            return make_classifier(options, structure, labels.several, verbose=self.verbose)
        for name in ("C", "coupling"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for a model given by name: set {name} in the classifier {self.model}"
                )
        if not hasattr(self.model, "predict_node_proba"):
            raise ValueError(f"model must be a name or a classifier of arbora.classify, got {self.model!r}")
        model = clone(self.model)
        params = model.get_params(deep=False)
        if params.get("structure") is not None and isinstance(self.structure, Hierarchy):
            raise ValueError("both the TextClassifier and its model have a structure: give one of them")
        model.set_params(verbose=max(self.verbose, model.verbose))
        return model.set_params(structure=structure) if params.get("structure", FLAT) is None else model

    # --- the choice -----------------------------------------------------------------------------------------------

    def chosen(self) -> TextClassifier:
        """Return an unfitted classifier whose features and model are those that this one has chosen."""
        check_is_fitted(self)
        fixed: TextClassifier = clone(self)
        if "features" in self.choice_:
            fixed.set_params(features=self.choice_["features"])
        options = self.trained_options()
        if options is not None:
            fixed.set_params(model=options.model, C=options.C, coupling=options.coupling)
        return fixed

    def refit(self, texts: Any, y: Any = None) -> TextClassifier:
        """Train the chosen features and model on other texts, without choosing again.

        Parameters
        ----------
        texts : sequence of str or Documents
        y : labels, optional
            As for `fit`.

        Returns
        -------
        TextClassifier
            Fitted, with the `choice_` of this one.
        """
        final = self.chosen().fit(texts, y)
        final.choice_, final.seconds_["choice"] = self.choice_, self.seconds_["choice"]
        return final

    def choice_text(self) -> str:
        """Return what was chosen, why, and how long it took, in a few lines."""
        check_is_fitted(self)
        if not self.choice_:
            return "Features and model were given, or there are too few texts to choose."
        return "\n".join(
            [f"Chosen in {self.seconds_['choice']:.1f} s:", *(f"  {line}" for line in self.choice_["why"])]
        )

    # --- prediction -----------------------------------------------------------------------------------------------

    @property
    def classes_(self) -> Matrix:
        """The labels, sorted."""
        return np.asarray(self._fitted().classes_)

    @property
    def nodes_(self) -> Matrix:
        """Names of the nodes of the structure."""
        return np.asarray(self._fitted().nodes_)

    @property
    def hierarchy_(self) -> Hierarchy:
        """The structure; without one, a root for each class."""
        tree: Hierarchy = self._fitted().hierarchy_
        return tree

    def _fitted(self) -> Any:
        if "estimator_" not in vars(self):  # a property must not hide that the model is not fitted
            raise AttributeError(f"this {type(self).__name__} is not fitted yet: call fit(texts, y)")
        return self.estimator_

    def predict(self, texts: Any) -> Any:
        """Predict labels in the form in which they were given to `fit`.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray, list of lists, or indicator matrix
        """
        X = self.rows(texts)
        return self.estimator_.predict(X)

    def predict_proba(self, texts: Any) -> Array:
        """Return the probability of every class; with one label per text they sum to 1.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_classes)
        """
        X = self.rows(texts)
        return np.asarray(self.estimator_.predict_proba(X))

    def predict_node_proba(self, texts: Any) -> Array:
        """Return the probability of every node of the structure; that of a parent covers its children.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_nodes)
            Columns in the order of `nodes_`.
        """
        X = self.rows(texts)
        return np.asarray(self.estimator_.predict_node_proba(X))

    def predict_path(self, texts: Any) -> list[Any]:
        """Return the path of names from a root to the predicted node, for each text.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of lists of names
            For several labels, a list of such paths for each text.
        """
        X = self.rows(texts)
        paths: list[Any] = self.estimator_.predict_path(X)
        return paths

    def predict_backoff(self, texts: Any, threshold: float = 0.5) -> Matrix:
        """Return the deepest node whose probability reaches a threshold: a broader answer where the model is unsure.

        Parameters
        ----------
        texts : sequence of str
        threshold : float in (0, 1]

        Returns
        -------
        ndarray of names of shape (n_texts,)
        """
        X = self.rows(texts)
        return np.asarray(self.estimator_.predict_backoff(X, threshold))

    def predict_top_k(self, texts: Any, k: int) -> tuple[Matrix, Array]:
        """Return the k most probable classes of each text, best first, and their probabilities.

        Parameters
        ----------
        texts : sequence of str
        k : int

        Returns
        -------
        labels, probabilities : ndarrays of shape (n_texts, k)
        """
        X = self.rows(texts)
        labels, values = self.estimator_.predict_top_k(X, k)
        return np.asarray(labels), np.asarray(values)

    def decision_function(self, texts: Any) -> Array:
        """Return the scores of the classes, as scikit-learn's linear classifiers do.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_classes), or (n_texts,) for two classes
        """
        X = self.rows(texts)
        return np.asarray(self.estimator_.decision_function(X))

    def score(self, texts: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of the texts whose label, or set of labels, is predicted exactly.

        Parameters
        ----------
        texts : sequence of str
        y : labels in the form in which they were given to `fit`
        sample_weight : array-like of shape (n_texts,), optional

        Returns
        -------
        float
        """
        X = self.rows(texts)
        return float(self.estimator_.score(X, y, sample_weight))

    # --- words, the page, model folders ---------------------------------------------------------------------------

    def top_words(self, n_words: int = 10, *, kind: str = DECIDING) -> dict[Any, list[str]]:
        """Return words of each node of the structure (without one: of each class).

        Parameters
        ----------
        n_words : int
            Largest number of words of a node.
        kind : {"deciding", "typical"}
            "deciding": words with the largest weights, which raise the score of a class most. "typical": words and
            phrases that the training texts of a class have and other classes do not have; at most 12.

        Returns
        -------
        dict of name to list of str
        """
        check_is_fitted(self)
        if kind not in (DECIDING, TYPICAL):
            raise ValueError(f"kind must be {DECIDING!r} or {TYPICAL!r}, got {kind!r}")
        names = self.estimator_.nodes_.tolist()
        if kind == TYPICAL:
            lists = [self.typical_.get(str(name), []) for name in names]
        else:
            lists = words_with_weight(self.estimator_, self._column_names(), n_words)
        return {name: [word for word, _ in words[:n_words]] for name, words in zip(names, lists, strict=True)}

    def _column_names(self) -> list[str]:
        return self.feature_names_ or feature_names(None, self.vectorizer_, self.estimator_.n_features_in_)

    def _describe(self, documents: Documents, y: Any, times: Any, about: About) -> Content:
        if times is not None:
            raise ValueError("times are for topics over time")
        model, trial = self.estimator_, None
        X = sp.csr_array(self.rows(documents) if len(documents) else (0, model.n_features_in_))
        if y is not None:
            trial = trial_of(model, X, y)
            documents = dataclasses.replace(documents, y=join_labels(trial.truth))
        subject = Subject(model, X, documents, self._column_names(), self.vectorizer_)
        return classifier_content(subject, tree_of_model(model), trial, about)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def tree_of_paths(labels: Labels) -> Hierarchy | None:
    """Make the hierarchy of labels that are paths; None if they are not strings, or none has a slash.

    >>> tree_of_paths(Labels([1, 2]))
    >>> tree_of_paths(Labels(["a/b", "c"])).n_nodes
    4
    """
    if labels.matrix:
        return None
    values = [name for names in labels.y for name in names] if labels.sets else labels.y.tolist()
    if not all(isinstance(name, str) for name in values):
        return None
    return tree_of_labels([[str(name)] for name in values])
