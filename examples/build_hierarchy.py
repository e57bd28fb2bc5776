"""Build, print, change and save a label structure: ``python examples/build_hierarchy.py``."""

import tempfile
from pathlib import Path

from arbora.structure import CycleError, Hierarchy

PRODUCTS = [
    "garden/tools/spades",
    "garden/tools/rakes",
    "garden/seeds",
    "kitchen/knives",
    "kitchen/pans/cast iron",
]


def main() -> None:
    # Every prefix of a path is a node. Several trees are a forest; a common root joins them.
    shop = Hierarchy.from_paths(PRODUCTS).join_roots("shop")
    print(shop, end="\n\n")

    print("path:     ", " > ".join(shop.path("garden/tools/rakes")))
    print("leaves:   ", ", ".join(shop.leaves("garden")))
    print("common:   ", shop.lowest_common_ancestor("garden/tools/rakes", "garden/seeds"))

    # Goods filed under "kitchen" itself get their own leaf. Chains of nodes with one child are collapsed.
    grown, moved = shop.spawn_leaves(["kitchen"])
    short, gone = grown.collapse_chains()
    print("spawned:  ", moved)
    print("collapsed:", gone)
    print(f"\n{short.format_tree(counts={'garden/seeds': 120, 'kitchen/knives': 45})}\n")

    # Write lines of parent<TAB>child and read them again.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "shop.tsv")
        file.write_text("".join(f"{parent}\t{child}\n" for parent, child in short.to_edges()))
        print("read back:", repr(Hierarchy.read(file)))

    try:
        shop.with_edges([("garden/seeds", "shop")])
    except CycleError as error:
        print("refused:  ", error)


if __name__ == "__main__":
    main()
