// Renames and merges of topics without a server: the data of the page are changed as the model would change them.
//
// Topics have the numbers of `TopicModel`: a merge gives the number of the first, later topics move up. Words of a merged
// topic are added up from the words that the page has; the model, which has all of them, may order them differently.

function editedRaw(raw, edits) {
  return edits.reduce((now, edit) => (edit.edit === "rename" ? renamed(now, edit) : merged(now, edit)), raw);
}

function nodeOfTopic(raw, topic) {
  return raw.nodes.topic.indexOf(topic);
}

function renamed(raw, { topic, title }) {
  const node = nodeOfTopic(raw, topic);
  const words = raw.nodes.words[node].slice(0, 3).map(([word]) => word).join(", ");
  return { ...raw, nodes: { ...raw.nodes, title: raw.nodes.title.with(node, title || words || raw.nodes.name[node]) } };
}

// Words of several topics together; shares are weighted by the sizes of the topics.
function mergedTerms(raw, group) {
  const total = group.reduce((sum, node) => sum + raw.nodes.size[node], 0) || 1;
  const found = new Map();
  for (const node of group) {
    for (const [word, share, everywhere] of raw.nodes.terms?.[node] ?? raw.nodes.words[node]) {
      const old = found.get(word) ?? [word, 0, everywhere ?? share];
      found.set(word, [word, old[1] + (share * raw.nodes.size[node]) / total, old[2]]);
    }
  }
  return [...found.values()];
}

function merged(raw, { topics }) {
  const { nodes } = raw;
  const group = topics.toSorted((a, b) => a - b).map((topic) => nodeOfTopic(raw, topic));
  const [first, ...others] = group;
  const gone = new Set(others);
  // Sizes move from the branches of the other topics to that of the first.
  const size = [...nodes.size];
  const [moved, own] = [others.reduce((sum, node) => sum + nodes.size[node], 0), [...nodes.own]];
  const above = (node, by) => {
    for (let at = nodes.parent[node]; at !== null; at = nodes.parent[at]) size[at] += by;
  };
  for (const node of others) above(node, -nodes.size[node]);
  above(first, moved);
  size[first] += moved;
  own[first] += moved;
  // Inner nodes without topics disappear, too.
  for (let changed = true; changed;) {
    changed = false;
    nodes.name.forEach((_, node) => {
      if (gone.has(node) || (nodes.topic[node] ?? null) !== null || nodes.parent[node] === null) return;
      if (!nodes.parent.some((parent, child) => parent === node && !gone.has(child))) changed = Boolean(gone.add(node));
    });
  }
  const terms = mergedTerms(raw, group);
  const best = terms.map((term) => [relevanceOf(term, DEFAULT_RELEVANCE), term]).sort(([a], [b]) => b - a).slice(0, N_WORDS).map(([, [word, share]]) => [word, share]);
  const columns = { ...nodes, size, own, words: nodes.words.with(first, best), title: nodes.title.with(first, best.slice(0, 3).map(([word]) => word).join(", ") || nodes.name[first]),
    documents: nodes.documents.with(first, group.flatMap((node) => nodes.documents[node])) };
  if (nodes.terms) columns.terms = nodes.terms.with(first, terms);
  return withoutNodes({ ...raw, nodes: columns }, gone, first, others);
}

// Remove nodes; their documents and time series go to `first`.
function withoutNodes(raw, gone, first, others) {
  const kept = [...raw.nodes.name.keys()].filter((node) => !gone.has(node));
  const place = new Map(kept.map((node, at) => [node, at]));
  for (const node of others) place.set(node, place.get(first));
  const move = (node) => (node === null || node === undefined || node < 0 ? node : place.get(node));
  const nodes = Object.fromEntries(Object.entries(raw.nodes).map(([key, column]) => [key, kept.map((node) => column[node])]));
  nodes.parent = nodes.parent.map(move);
  // Topics keep their order and have numbers without gaps.
  const numbers = nodes.topic.filter((topic) => (topic ?? null) !== null).sort((a, b) => a - b);
  nodes.topic = nodes.topic.map((topic) => ((topic ?? null) === null ? null : numbers.indexOf(topic)));
  const documents = { ...raw.documents, node: raw.documents.node.map((node) => (Array.isArray(node) ? node.map(move) : move(node))) };
  const nodePositions = kept.flatMap((node) => raw.nodePositions.slice(3 * node, 3 * node + 3));
  return { ...raw, nodes, documents, nodePositions, time: mergedTime(raw.time, first, others, move), about: { ...raw.about, n_nodes: kept.length } };
}

function mergedTime(time, first, others, move) {
  if (!time) return time;
  const [at, more] = [time.nodes.indexOf(first), others.map((node) => time.nodes.indexOf(node))];
  const shares = time.shares[at].map((share, bin) => (share === null ? null : more.reduce((sum, place) => sum + (time.shares[place][bin] ?? 0), share)));
  const kept = [...time.nodes.keys()].filter((place) => !more.includes(place));
  const column = (list) => kept.map((place) => list[place]);
  const known = shares.map((share, bin) => [share, bin]).filter(([share]) => share !== null);
  const third = Math.max(1, Math.floor(known.length / 3));
  const mean = (list) => list.reduce((sum, [share]) => sum + share, 0) / Math.max(1, list.length);
  const trend = { ...time.trends?.[at], peak: known.toSorted(([a], [b]) => b - a)[0]?.[1] ?? 0, change: mean(known.slice(-third)) - mean(known.slice(0, third)) };
  return { ...time, nodes: column(time.nodes).map(move), shares: column(time.shares.with(at, shares)), words: column(time.words),
    trends: time.trends ? column(time.trends.with(at, trend)) : time.trends };
}
