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
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from arbora.app.answers import label_names_of, predict_with_probability
from arbora.app.classifiers import AUTO, COUPLED, FLAT, ClassifierOptions, make_classifier
from arbora.app.contents.classifier import (
    as_text,
    classifier_content,
    typical_words_of_nodes,
    words_with_weight,
)
from arbora.app.contents.nodes import SAMPLE, Subject
from arbora.app.documents import Documents, as_documents
from arbora.app.evaluation import Trial
from arbora.app.folder import Content, TextModel
from arbora.app.labels import tree_of_labels, tree_of_model
from arbora.app.text_choice import (
    LEAST_ROWS,
    MOST_ROWS,
    SAFE,
    Labels,
    Recipe,
    Search,
    SplitTexts,
    Whole,
    choose,
    describe_choice,
    families_of,
    parse_recipe,
    sample_rows,
    sample_size,
    vectorizer_of,
)
from arbora.app.text_rows import TextOptions, feature_names, text_language, transform_rows, warn_of_script
from arbora.arrays import Array, Matrix
from arbora.core.estimator import all_or_nothing
from arbora.datasets.readers.texts import join_labels
from arbora.structure import Hierarchy

# --- Predictions of a fitted `TextClassifier`: labels, probabilities, paths and scores of texts -------------


class TextPrediction:
    """Methods of `TextClassifier` that answer for new texts, by the classifier of rows."""

    vectorizer_: Any
    estimator_: Any

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

    def _rows(self, texts: Any) -> Any:
        check_is_fitted(self)
        return transform_rows(as_documents(texts), self.vectorizer_, self.estimator_.n_features_in_)

    def _ask(self, method: str, texts: Any, *arguments: Any) -> Any:
        """Call a method of the classifier of rows."""
        X = self._rows(texts)
        return getattr(self.estimator_, method)(X, *arguments)

    def predict(self, texts: Any) -> Any:
        """Predict labels in the form in which they were given to `fit`.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray, list of lists, or indicator matrix
        """
        return self._ask("predict", texts)

    def predict_proba(self, texts: Any) -> Array:
        """Return the probability of every class; with one label per text they sum to 1.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        ndarray of shape (n_texts, n_classes)
        """
        return np.asarray(self._ask("predict_proba", texts))

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
        return np.asarray(self._ask("predict_node_proba", texts))

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
        found: list[Any] = self._ask("predict_path", texts)
        return found

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
        return np.asarray(self._ask("predict_backoff", texts, threshold))

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
        labels, values = self._ask("predict_top_k", texts, k)
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
        return np.asarray(self._ask("decision_function", texts))

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
        return float(self._ask("score", texts, y, sample_weight))


# --- The content of a fitted `TextClassifier`: its words, the page, and model folders -----------------------


DECIDING, TYPICAL = "deciding", "typical"
_MOST_TEXTS = 4000  # training texts whose typical words are counted


class ClassifierContent(TextModel):
    """Methods of `TextClassifier` that describe, show, save and load it."""

    _kind = "text classifier"
    _command = "arbora classify train"
    estimator_: Any
    vectorizer_: Any
    feature_names_: Any
    typical_: dict[str, list[tuple[str, float]]]
    choice_: dict[str, Any]
    seconds_: dict[str, float]

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
            weighed = [self.typical_.get(str(name), []) for name in names]
        else:
            weighed = words_with_weight(self.estimator_, self._column_names(), n_words)
        return {
            name: [word for word, _ in words[:n_words]] for name, words in zip(names, weighed, strict=True)
        }

    def _column_names(self) -> list[str]:
        return self.feature_names_ or feature_names(None, self.vectorizer_, self.estimator_.n_features_in_)

    def _find_typical(self, documents: Documents, X: Any, y: Any) -> dict[str, list[tuple[str, float]]]:
        """Return the typical words of the nodes, by name."""
        tree = tree_of_model(self.estimator_)
        labels = as_text(label_names_of(self.estimator_, y))
        sets = [one if isinstance(one, list) else [one] for one in labels]
        subject = Subject(self.estimator_, sp.csr_array(X), documents, self._column_names(), self.vectorizer_)
        found = typical_words_of_nodes(subject, tree, sets, _MOST_TEXTS)
        return dict(zip(map(str, tree.names.tolist()), found, strict=True))

    def content(
        self,
        texts: Any = None,
        y: Any = None,
        *,
        times: Any = None,
        name: str | None = None,
        sample: int = SAMPLE,
        settings: Mapping[str, Any] | None = None,
        notices: Sequence[str] = (),
    ) -> Content:
        """Describe the classes and documents: the content of a model folder and of the page.

        Parameters
        ----------
        texts : sequence of str or Documents, optional
            Documents to show; without them only classes and words are shown.
        y : labels, optional
            As for `fit`. The content then has an evaluation on these texts, which should not be training texts.
        times : None
            Texts of classifiers have no times.
        name : str, optional
        sample : int
            Largest number of documents to keep.
        settings : mapping, optional
            How the model was made.
        notices : sequence of str
            Messages for the user.

        Returns
        -------
        Content
        """
        if times is not None:
            raise ValueError("times are for topics over time")
        check_is_fitted(self)
        documents = as_documents([] if texts is None else texts, name=name or type(self).__name__)
        model, n_features = self.estimator_, self.estimator_.n_features_in_
        X = sp.csr_array((0, n_features))
        if len(documents):
            X = sp.csr_array(transform_rows(documents, self.vectorizer_, n_features))
        tree, trial = tree_of_model(model), None
        if y is not None:
            labels = as_text(label_names_of(model, y))
            found = predict_with_probability(model, X)
            found = found._replace(labels=as_text(found.labels), likeliest=as_text(found.likeliest))
            trial = Trial(labels, found, None, np.arange(len(labels)), None, "given")
            documents = dataclasses.replace(documents, y=join_labels(labels))
        subject = Subject(model, X, documents, self._column_names(), self.vectorizer_)
        content = classifier_content(
            subject, tree, trial, sample=sample, settings=settings or {}, notices=notices
        )
        return content._replace(model={**content.model, "text_classifier": self})

    @classmethod
    def _from_parts(cls, kept: dict[str, Any]) -> Self | None:
        """Make the model of a folder of version 0.1."""
        if not hasattr(kept.get("estimator"), "classes_"):
            return None
        model = cls()
        model.vectorizer_, model.estimator_ = kept["vectorizer"], kept["estimator"]
        model.feature_names_, model.typical_ = kept.get("feature_names"), {}
        model.choice_, model.seconds_ = {}, {}
        return model


# --- `TextClassifier`: an estimator that files raw texts into classes ---------------------------------------


class TextClassifier(TextPrediction, ClassifierContent, ClassifierMixin, BaseEstimator):
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
        1 prints what was chosen, and shows progress bars on a terminal.

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
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags

    # --- fit ------------------------------------------------------------------------------------------------------

    def fit(self, texts: Any, y: Any) -> Self:
        """Choose features and model, and train.

        Parameters
        ----------
        texts : sequence of str
        y : one label per text, a list of label lists, or an indicator matrix

        Returns
        -------
        self
        """
        return self.fit_documents(as_documents(texts), y)

    def fit_documents(self, documents: Documents, y: Any = None, *, progress: int = 0) -> Self:
        """Train on a collection, which may also have rows of numbers.

        Parameters
        ----------
        documents : Documents
        y : labels, optional
            By default those of the documents.
        progress : int
            1: a progress bar of the model on a terminal.

        Returns
        -------
        self
        """
        y = documents.y if y is None else y
        if not len(documents):
            raise ValueError("no texts: give at least one text of each class")
        with all_or_nothing(self):
            times = [time.perf_counter()]
            labels, structure = Labels(y), self._find_structure(y)
            X = self._make_rows(documents, labels, structure, times)
            estimator = self._make_estimator(structure, labels)
            estimator.set_params(verbose=max(self.verbose, progress, estimator.verbose))
            self.estimator_ = estimator.fit(X, y)
            times.append(time.perf_counter())
            self.feature_names_ = None
            if documents.texts is None:
                self.feature_names_ = feature_names(documents, None, self.estimator_.n_features_in_)
            self.typical_ = self._find_typical(documents, X, y)
            times.append(time.perf_counter())
            spent = np.diff(times).tolist()
            self.seconds_ = {
                "features": spent[0] + spent[2],
                "choice": spent[1],
                "model": spent[3],
                "words": spent[4],
            }
        if self.verbose and self.choice_:
            print(self.choice_text())
        return self

    def fit_rows(self, documents: Documents) -> Any:
        """Choose the features if they are to choose, and make the rows of labelled documents; train no model.

        Parameters
        ----------
        documents : Documents

        Returns
        -------
        CSR matrix of shape (n_documents, n_features)
            The rows that `fit_documents` trains on.
        """
        with all_or_nothing(self):
            return self._make_rows(documents, Labels(documents.y), self._find_structure(documents.y), [])

    def _make_rows(
        self, documents: Documents, labels: Labels, structure: Hierarchy | None, times: list[float]
    ) -> Any:
        """Set `choice_` and `vectorizer_`, and return the rows; append the times of the three steps."""
        self.choice_ = {}
        self.check(labels.y)
        source = self._split(documents)
        times.append(time.perf_counter())
        self.choice_ = self._choose(source, labels, structure, len(documents))
        times.append(time.perf_counter())
        self.vectorizer_, X = self._final_rows(source)
        times.append(time.perf_counter())
        return X

    def check(self, y: Any) -> None:
        """Raise an error if the parameters do not fit together, or do not fit the labels, before the long work."""
        self._make_estimator(self._find_structure(y), Labels(y))
        if isinstance(self.features, str):
            recipe = SAFE if self.features == AUTO else parse_recipe(self.features)
            if self.language != AUTO:
                recipe._replace(stems=True).vectorizer(self.language).rules()  # refuses an unknown language

    def _find_structure(self, y: Any) -> Hierarchy | None:
        if isinstance(self.structure, str) and self.structure not in (FLAT, AUTO):
            raise ValueError(f'structure must be a Hierarchy, "auto", "flat" or None, got {self.structure!r}')
        if self.structure is not None and not isinstance(self.structure, str):
            given: Hierarchy = self.structure
            return given
        return None if self.structure == FLAT else tree_of_paths(y)

    def _split(self, documents: Documents) -> SplitTexts | tuple[Any, Any]:
        """Split the texts for recipes; otherwise return a fitted vectorizer (or None), and rows."""
        if documents.texts is None:
            return None, sp.csr_matrix(documents.X)
        if isinstance(self.features, str):
            language = text_language(documents.texts) if self.language == AUTO else self.language
            warn_of_script(documents.texts, language)
            return SplitTexts(documents.texts, language)
        features = self.features
        if isinstance(features, TextOptions):
            if features.language == AUTO:
                features = features._replace(language=text_language(documents.texts))
            warn_of_script(documents.texts, features.language)
        vectorizer = vectorizer_of(features, len(documents))
        return vectorizer, vectorizer.fit_transform(documents.texts)

    def _choose(
        self, source: Any, labels: Labels, structure: Hierarchy | None, n_rows: int
    ) -> dict[str, Any]:
        """Choose what is "auto"; return the choice."""
        free_model, texts = self._is_auto(self._model()), isinstance(source, SplitTexts)
        free_features = texts and self._is_auto(self.features)
        groups = labels.groups()
        n_classes = len(np.unique(groups))
        if not (free_model or free_features) or n_rows < LEAST_ROWS or (n_classes < 2 and not labels.several):
            return {}
        rng = np.random.default_rng(int(self.random_state) if isinstance(self.random_state, Integral) else 0)
        short = texts and source.short
        most = sample_size(n_rows, source.length, short) if texts else MOST_ROWS
        rows = sample_rows(groups, families_of(labels.classes(), structure), rng, most)
        given = self._recipe() if texts else None

        def rows_of(recipe: Recipe | None) -> Any:
            return source.fit(recipe or given, rows)[1] if texts else source[1][rows]

        whole = Whole(n_rows, n_classes, len(source.tokens.ids)) if texts else None
        search = Search(rows_of, Labels(labels.take(rows)), structure, self.n_jobs, self.random_state, whole)
        recipes = source.candidates() if free_features else None
        found = choose(search, recipes, free_model=free_model, C=self.C, n_rows=n_rows, short=short)
        return describe_choice(found, free_features, free_model)

    def recipe_name(self) -> str | None:
        """Return the name of the features, as given or as chosen; None if a vectorizer is given."""
        if not isinstance(self.features, str):
            return None
        given = SAFE.name if self._is_auto(self.features) else self.features
        return str((vars(self).get("choice_") or {}).get("features", given))

    def _recipe(self) -> Recipe:
        return parse_recipe(self.recipe_name() or SAFE.name)

    def _model(self) -> Any:
        """Return the model, or the one that a given coupling stands for."""
        return COUPLED[0] if self._is_auto(self.model) and self.coupling is not None else self.model

    @staticmethod
    def _is_auto(value: Any) -> bool:
        return isinstance(value, str) and value == AUTO

    def _final_rows(self, source: Any) -> tuple[Any, Any]:
        return source.fit(self._recipe()) if isinstance(source, SplitTexts) else source

    def trained_options(self) -> ClassifierOptions | None:
        """Return what is trained, as given or as chosen; None if an estimator is given."""
        if not isinstance(self.model, str):
            return None
        name, C, coupling = self._model(), self.C, self.coupling
        if self._is_auto(name):
            chosen = vars(self).get("choice_") or {}
            name = chosen.get("model", FLAT)
            C = chosen.get("C", C)
            coupling = chosen.get("coupling")
        return ClassifierOptions(name, C, coupling, self.n_jobs, self.random_state)

    def _make_estimator(self, structure: Hierarchy | None, labels: Labels) -> Any:
        options = self.trained_options()
        if options is None:
            return self._clone_model(structure)
        return make_classifier(options, structure, labels.several, verbose=self.verbose)

    def _clone_model(self, structure: Hierarchy | None) -> Any:
        """Clone a given classifier; give it the structure if it has none."""
        for name in ("C", "coupling"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for a model given by name: set {name} in the classifier {self.model}"
                )
        if not hasattr(self.model, "predict_node_proba"):
            raise ValueError(f"model must be a name or a classifier of arbora.classify, got {self.model!r}")
        model = clone(self.model)
        known = model.get_params(deep=False)
        if known.get("structure") is not None and isinstance(self.structure, Hierarchy):
            raise ValueError("both the TextClassifier and its model have a structure: give one of them")
        return model.set_params(structure=structure) if known.get("structure", FLAT) is None else model

    def chosen(self) -> TextClassifier:
        """Return an unfitted classifier whose features and model are those that this one has chosen."""
        check_is_fitted(self)
        fixed: TextClassifier = clone(self)
        if "features" in self.choice_:
            fixed.set_params(features=self.choice_["features"])
        if isinstance(self.model, str):
            options = self.trained_options()
            assert options is not None
            fixed.set_params(model=options.model, C=options.C, coupling=options.coupling)
        return fixed

    def choice_text(self) -> str:
        """Return what was chosen, why, and how long it took, in a few lines."""
        check_is_fitted(self)
        if not self.choice_:
            return "Features and model were given, or there are too few texts to choose."
        return "\n".join(
            [
                f"Chosen in {self.seconds_['choice']:.1f} s:",
                *(f"  {line}" for line in self.choice_["why"]),
            ]
        )


def tree_of_paths(y: Any) -> Hierarchy | None:
    """Make the hierarchy of labels that are paths; None if they are not strings, or none has a slash.

    Examples
    --------
    >>> tree_of_paths([1, 2])
    >>> tree_of_paths(["a/b", "c"]).n_nodes
    4
    """
    if getattr(y, "ndim", 1) == 2:
        return None
    labels = Labels(y)
    values = [name for names in labels.y for name in names] if labels.sets else labels.y.tolist()
    if not all(isinstance(name, str) for name in values):
        return None
    return tree_of_labels([[str(name)] for name in values])
