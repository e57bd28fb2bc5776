"""Topics of texts by BERTopic: run by the interpreter of an environment that has it, without arbora.

    python bertopic_child.py job.json found.json

The job has "texts", "encoder" (a folder of a sentence encoder), "seed" and "n_topics" (null: the number that BERTopic
finds). The result has "labels" (-1 for outliers), "words" (ten of each topic), "encoding" and "seconds" (processor
seconds of the sentence encoder, and of everything else) and the versions of the packages. The embeddings are stored
beside the job, and used again by a second job with the same texts.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path


def main(job_path: Path, found_path: Path) -> None:
    import numpy as np
    import torch
    from bertopic import BERTopic
    from sentence_transformers import SentenceTransformer
    from sklearn.feature_extraction.text import CountVectorizer
    from umap import UMAP

    torch.set_num_threads(1)
    job = json.loads(job_path.read_text(encoding="utf-8"))
    store = job_path.with_suffix(".npz")
    if store.exists():
        kept = np.load(store)
        rows, encoding = kept["rows"], float(kept["seconds"])
    else:
        start = time.process_time()
        encoder = SentenceTransformer(job["encoder"], device="cpu")
        rows = encoder.encode(job["texts"], batch_size=32, show_progress_bar=False)
        encoding = time.process_time() - start
        np.savez(store, rows=rows, seconds=encoding)
    UMAP(n_components=5, random_state=0).fit(rows[:200])  # compiles
    start = time.process_time()
    model = BERTopic(
        umap_model=UMAP(
            n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=job["seed"]
        ),
        vectorizer_model=CountVectorizer(stop_words="english"),
        nr_topics=None if job["n_topics"] is None else job["n_topics"] + 1,  # the outliers count as a topic
    )
    labels, _ = model.fit_transform(job["texts"], rows)
    seconds = time.process_time() - start
    topics = sorted(topic for topic in model.get_topics() if topic >= 0)
    words = [[word for word, _ in model.get_topic(topic)[:10]] for topic in topics]
    versions = {name: version(name) for name in ("bertopic", "sentence-transformers", "umap-learn", "torch")}
    found = {
        "labels": [int(label) for label in labels],
        "words": words,
        "encoding": encoding,
        "seconds": seconds,
        "versions": versions,
    }
    found_path.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
