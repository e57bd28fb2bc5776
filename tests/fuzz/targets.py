"""All targets of the fuzzer; their modules are imported by the process that needs them."""

from fuzz.target import Target

TARGETS = [
    Target("readers", "text formats, plain and packed", "readers:prepare", "readers:attack_texts", 0.65),
    Target("folders of texts", "names and files", "readers:prepare", "readers:attack_folder", 0.03),
    Target("found texts", "JSON, CSV, HTML, PDF, Word", "found_texts:prepare", "found_texts:attack", 0.05),
    Target("npz", "matrices in npz files", "readers:prepare", "readers:attack_npz", 0.07),
    Target("structure files", "hierarchies, graphs", "structures:prepare", "structures:attack_files", 0.08),
    Target("structures", "edges, parents, paths", "structures:prepare", "structures:attack_values", 0.08),
    Target("server", "requests to 127.0.0.1", "requests:prepare", "requests:attack", 0.003),
    Target("page", "hostile texts in all fields", "requests:prepare_page", "requests:attack_page", 0.0015),
    Target("model folders", "open, make the page", "models:prepare_folders", "models:attack_folders", 0.0015),
    Target("edits", "of topics, by the page", "edits:prepare", "edits:attack", 0.001),
    Target("edit requests", "to /api/edits", "edit_requests:prepare", "edit_requests:attack", 0.0005),
    Target(
        "model files", "load, predict", "models:prepare_models", "models:attack_models", 0.022, checked=True
    ),
    Target(
        "estimators", "odd matrices and labels", "matrices:prepare", "matrices:attack", 0.012, checked=True
    ),
]
BROKEN = Target("broken", "crashes, hangs, raises", "broken:prepare", "broken:attack", 0.0)
