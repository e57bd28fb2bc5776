"""`NamedNodes`: base class of `Hierarchy` and `LabelGraph`, immutable nodes with names and integer ids."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from arbora.arrays import Ints, Names
from arbora.structure.ancestry import distinct
from arbora.structure.errors import StructureError
from arbora.structure.names import as_list, name_array, unknown


class NamedNodes:
    """An immutable set of named nodes with edges between them.

    Node ids are ``0, ..., n_nodes - 1``; ``names[i]`` is the name of node ``i``.
    """

    _kind: ClassVar[str]
    names: Names
    edges: Ints
    labels: Names | None = None  # remembered by `for_labels`

    def __init__(self, names: Iterable[Any], edges: ArrayLike) -> None:
        checked = name_array(names)
        if not checked.size:
            raise StructureError(f"the {self._kind} is empty: give at least one edge, or nodes=")
        coded = np.asarray(edges)
        if coded.size and (coded.dtype.kind not in "iu" or coded.ndim != 2 or coded.shape[1] != 2):
            raise StructureError(
                f"edges must be integers of shape (n_edges, 2), got {coded.dtype} {coded.shape}"
            )
        coded = coded.astype(np.int64).reshape(-1, 2)
        if coded.size and not 0 <= coded.min() <= coded.max() < checked.size:
            raise StructureError(f"edges must hold node ids between 0 and {checked.size - 1}")
        loops = np.flatnonzero(coded[:, 0] == coded[:, 1])
        if loops.size:
            self._refuse_loop(checked[coded[loops[0], 0]], int(loops[0]))
        # __setattr__ refuses changes, so attributes are written through __dict__.
        self.__dict__.update(names=checked, edges=coded)

    def _refuse_loop(self, name: object, position: int) -> NoReturn:
        raise StructureError(f"node {name!r} is joined to itself (edge {position}): remove that edge")

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(
            f"a {self._kind} cannot be changed: build a new one instead of setting {attribute!r}"
        )

    def __delattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f"a {self._kind} cannot be changed")

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.names.size)

    @property
    def n_edges(self) -> int:
        """Number of distinct edges."""
        return int(self.edges.shape[0])

    def __len__(self) -> int:
        return self.n_nodes

    def __iter__(self) -> Iterator[Any]:
        return iter(self.names.tolist())

    def __contains__(self, label: object) -> bool:
        return label in self._index

    @cached_property
    def _index(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names.tolist())}

    def encode(self, labels: Iterable[Any]) -> Ints:
        """Node ids of labels.

        Parameters
        ----------
        labels : array-like of names
            An array keeps its shape.

        Returns
        -------
        ids : ndarray of int64

        Raises
        ------
        UnknownLabelError
            If a label is not a node. The message names the first such label and the most similar node.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_paths(["comp/graphics", "comp/sys", "rec"])
        >>> h.encode(["rec", "comp", "rec"])
        array([3, 0, 3])
        """
        shape = labels.shape if isinstance(labels, np.ndarray) else (-1,)
        flat = as_list(labels.ravel() if isinstance(labels, np.ndarray) else labels)
        try:
            ids = np.fromiter(map(self._index.__getitem__, flat), dtype=np.int64, count=len(flat))
        except (KeyError, TypeError):
            wrong = [label for label in flat if not _is_key(label) or label not in self._index]
            raise unknown(wrong[0], self.names.tolist(), self._kind, len(wrong) - 1) from None
        return ids.reshape(shape)

    def id_of(self, label: object) -> int:
        """Node id of one label.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b")]).id_of("b")
        1
        """
        return int(self.encode([label])[0])

    def for_labels(self, y: Iterable[Any]) -> Self:
        """Return an equal structure that remembers the sorted distinct labels of a data set.

        Some tools of scikit-learn (`cross_val_predict`, `VotingClassifier`) replace labels by their positions in
        ``np.unique(y)``. A classifier whose structure remembers the labels reads integer labels as these positions.
        Structures that are derived from this one do not remember them.

        Parameters
        ----------
        y : array-like of names
            All labels of the data, one per row.

        Returns
        -------
        Hierarchy or LabelGraph
            Its attribute ``labels`` holds the sorted names.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> tree = Hierarchy.from_edges([("root", "b"), ("root", "a"), ("root", "c")])
        >>> labelled = tree.for_labels(["b", "a", "b"])
        >>> labelled.labels, labelled == tree
        (array(['a', 'b'], dtype=object), True)
        """
        distinct_labels = list(dict.fromkeys(as_list(y)))
        self.encode(distinct_labels)
        try:
            return self._remembering(sorted(distinct_labels))
        except TypeError:
            raise StructureError(
                "the labels mix strings and integers, which have no order: name all nodes by strings"
            ) from None

    def _remembering(self, labels: Iterable[Any]) -> Self:
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__, labels=name_array(labels))
        return same

    def decode(self, ids: ArrayLike) -> Names:
        """Names of node ids, in an object array of the same shape.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b"), ("a", "c")]).decode([2, 0])
        array(['c', 'a'], dtype=object)
        """
        codes = self._check_ids(ids)
        chosen = np.empty(codes.shape, dtype=object)
        chosen[...] = self.names[codes]
        return chosen

    def _check_ids(self, ids: ArrayLike) -> Ints:
        codes = np.asarray(ids)
        if codes.size and codes.dtype.kind not in "iu":
            raise TypeError(f"node ids are integers, got {codes.dtype}: encode(names) gives the ids")
        if codes.size and not 0 <= codes.min() <= codes.max() < self.n_nodes:
            wrong = codes[(codes < 0) | (codes >= self.n_nodes)].flat[0]
            raise StructureError(f"{wrong} is not a node id: the ids are 0 to {self.n_nodes - 1}")
        return codes.astype(np.int64)

    def indicator(self, label_sets: Iterable[Any]) -> sparse.csr_array:
        """Boolean ``n_samples x n_nodes`` matrix of label sets.

        Parameters
        ----------
        label_sets : sequence
            One entry per sample: a name, or a collection of names (it may be empty).

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("a", "b"), ("a", "c")])
        >>> h.indicator([["b", "c"], [], "a"]).toarray().astype(int)
        array([[0, 1, 1],
               [0, 0, 0],
               [1, 0, 0]])
        """
        sets = [
            [entry] if isinstance(entry, str | int | np.generic) else as_list(entry)
            for entry in as_list(label_sets)
        ]
        indptr = np.cumsum([0, *map(len, sets)])
        ids = self.encode([label for labels in sets for label in labels])
        rows = np.repeat(np.arange(len(sets)), np.diff(indptr))
        entries = distinct(rows * self.n_nodes + ids)
        shape = (len(sets), self.n_nodes)
        coordinates = (entries // self.n_nodes, entries % self.n_nodes)
        return sparse.csr_array((np.ones(entries.size, dtype=bool), coordinates), shape=shape)

    def to_edges(self) -> list[tuple[Any, Any]]:
        """Edges as pairs of names (parent, child for a hierarchy), sorted by id.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_paths(["comp/sys", "comp/os"]).to_edges()
        [('comp', 'comp/sys'), ('comp', 'comp/os')]
        """
        ends = self.names[self.edges].tolist()
        return [(first, second) for first, second in ends]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.to_state(), other.to_state()
        mine.pop("labels", None)  # what a structure remembers is no part of it
        # Lists of names are compared as lists: as arrays, 1 and "1" would be equal.
        return all(
            np.array_equal(value, theirs[key]) if isinstance(value, np.ndarray) else value == theirs[key]
            for key, value in mine.items()
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self._kind, tuple(self.names.tolist()), self.edges.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __copy__(self) -> "NamedNodes":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "NamedNodes":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_state, (self.to_state(),)

    def to_state(self) -> dict[str, Any]:
        """State to rebuild the object: a dict of JSON scalars, lists and numpy arrays.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> Hierarchy.from_edges([("a", "b")]).to_state()
        {'kind': 'hierarchy', 'names': ['a', 'b'], 'edges': array([[0, 1]])}
        """
        state = {"kind": self._kind, "names": self.names.tolist(), "edges": self.edges}
        return state if self.labels is None else {**state, "labels": self.labels.tolist()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Any:
        """Rebuild from ``to_state()``; the state is validated.

        Examples
        --------
        >>> from arbora.structure import Hierarchy
        >>> h = Hierarchy.from_edges([("a", "b")])
        >>> Hierarchy.from_state(h.to_state()) == h
        True
        """
        rest = dict(state)
        kind = rest.pop("kind", None)
        if kind != cls._kind:
            raise StructureError(f"this is the state of a {kind!r}, not of a {cls._kind!r}")
        if not {"names", "edges"} <= set(rest):
            raise StructureError(f"the state of a {cls._kind} needs 'names' and 'edges', got {sorted(rest)}")
        labels = rest.pop("labels", None)
        structure = cls(**rest)
        return structure if labels is None else structure._remembering(labels)


def _is_key(label: object) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True
