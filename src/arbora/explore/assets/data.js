// The models of the page: trees, documents, and what is asked of them. No drawing here.

class Model {
  constructor(raw) {
    Object.assign(this, raw.nodes); // columns: name, title, parent, size, own, words, documents, ...
    this.about = raw.about;
    this.docs = raw.documents; // columns: id, text, node, label, probability, ...
    this.positions = raw.positions;
    this.nodePositions = raw.nodePositions;
    this.evaluation = raw.evaluation;
    this.time = raw.time;
    this.n = this.name.length;
    this.children = this.name.map(() => []);
    this.parent.forEach((parent, node) => parent !== null && this.children[parent].push(node));
    this.root = this.#findRoot();
    for (const list of this.children) list.sort((a, b) => this.size[b] - this.size[a] || a - b);
    this.byName = new Map(this.name.map((name, node) => [name, node]));
    this.scores = new Map((this.evaluation?.nodes ?? []).map((row) => [row.node, row]));
  }

  // The one root, or a node that is put above all roots.
  #findRoot() {
    const roots = [...this.name.keys()].filter((node) => this.parent[node] === null);
    if (roots.length === 1) return roots[0];
    const top = this.n;
    this.name.push("");
    this.title.push(this.about.name);
    this.parent.push(null);
    this.size.push(this.about.n_documents);
    this.own.push(0);
    this.words.push([]);
    this.documents.push([]);
    this.children.push(roots);
    for (const root of roots) this.parent[root] = top;
    return top;
  }

  share(node) {
    return this.size[node] / Math.max(1, this.about.n_documents);
  }

  path(node) {
    const path = [];
    for (let at = node; at !== null; at = this.parent[at]) path.unshift(at);
    return path;
  }

  // The node whose children are looked at when a node is chosen: itself, or its parent if it has none.
  focus(node) {
    return this.children[node].length || this.parent[node] === null ? node : this.parent[node];
  }

  // The child of `above` that holds a node; null if the node is elsewhere, or is `above` itself.
  branch(node, above) {
    for (let at = node; at !== null; at = this.parent[at]) {
      if (this.parent[at] === above) return at;
    }
    return null;
  }

  // Where a document belongs: by its label if it is one of a classifier's nodes, else where the model puts it.
  home(doc) {
    const label = this.about.kind === "classifier" ? first(this.docs.label[doc]) : null; // a topic may be called "0" too
    return this.byName.get(label) ?? first(this.docs.node[doc]);
  }

  // Documents of the sample at or below a node, those that stand for it first.
  documentsOf(node) {
    if (!this.byHome) {
      this.byHome = this.name.map(() => []);
      for (let doc = 0; doc < this.docs.id.length; doc++) this.byHome[this.home(doc)]?.push(doc);
    }
    const found = new Set(this.documents[node]);
    const open = [node];
    while (open.length) {
      const at = open.pop();
      for (const doc of this.byHome[at]) found.add(doc);
      open.push(...this.children[at]);
    }
    return [...found];
  }

  // Nodes whose title, name or words fit, best first; then documents.
  search(query, mostNodes = 24, mostDocuments = 8) {
    const wanted = query.trim().toLowerCase();
    if (!wanted) return [];
    const rank = (node) => {
      const title = this.title[node].toLowerCase();
      if (title === wanted) return 0;
      if (title.startsWith(wanted)) return 1;
      if (title.includes(wanted)) return 2;
      if (this.name[node].toLowerCase().includes(wanted)) return 3;
      const place = this.words[node].findIndex(([word]) => word.toLowerCase().startsWith(wanted));
      return place < 0 ? Infinity : 4 + place / 100;
    };
    const nodes = [...this.title.keys()]
      .map((node) => ({ node, rank: rank(node) }))
      .filter((found) => found.rank < Infinity)
      .sort((a, b) => a.rank - b.rank || this.size[b.node] - this.size[a.node])
      .slice(0, mostNodes);
    return wanted.length < 3 ? nodes : nodes.concat(this.#searchDocuments(wanted, mostDocuments));
  }

  #searchDocuments(wanted, most) {
    const found = [];
    for (let doc = 0; doc < this.docs.id.length && found.length < most; doc++) {
      if (this.docs.text[doc].toLowerCase().includes(wanted) || this.docs.id[doc].toLowerCase().includes(wanted)) {
        found.push({ doc, node: this.home(doc) });
      }
    }
    return found;
  }
}

// A document of a multilabel model has lists where others have one value.
function first(value) {
  return Array.isArray(value) ? value[0] : value;
}

function listed(value) {
  return value === null || value === undefined ? [] : Array.isArray(value) ? value : [value];
}

// What an icicle shows below a node: rows with a place in the tree and a size on the screen (`part` of the height;
// `value` is what the children leave of it).
//
// Children share the part of their parent by their sizes, as far as they can be read: none is lower than `least`, and
// those for which there is no room are folded into one row, which takes a quarter of the part at most. Children may add up
// to more than their parent (documents with several labels): then they are scaled to fit.
function slice(model, focus, levels, least) {
  const rows = [];
  const add = (node, parent, part, level, branch) => {
    const row = { id: `n${node}`, node, parent, part, value: part, level, branch, folded: 0 };
    rows.push(row);
    const children = model.children[node];
    if (level === levels || !children.length) return;
    const parts = partsOf(model, node, children).map((one) => one * part);
    const total = parts.reduce((a, b) => a + b, 0);
    const room = Math.floor(part / least + 1e-9);
    // If not all fit, some of the room is left for the large ones to be larger.
    const shown = children.length <= room ? children.length : Math.max(0, Math.floor(0.75 * room) - 1);
    const kept = parts.slice(0, shown);
    if (children.length > shown) kept.push(Math.min(parts.slice(shown).reduce((a, b) => a + b, 0), part / 4));
    widened(kept, Math.min(least, part / kept.length), Math.min(part, total)).forEach((one, rank) => {
      row.value -= one;
      if (rank < shown) add(children[rank], row.id, one, level + 1, level === 0 ? rank : branch);
      else rows.push({ id: `m${node}`, node, parent: row.id, part: one, value: one, level: level + 1, branch: null,
        folded: children.length - shown });
    });
    row.value = Math.max(0, row.value);
  };
  add(focus, "", 1, 0, null);
  return rows;
}

// Shares of the children of a node in it, at most 1 in all.
function partsOf(model, node, children) {
  const total = children.reduce((sum, child) => sum + model.size[child], 0);
  const whole = Math.max(model.size[node], total);
  return children.map((child) => (whole > 0 ? model.size[child] / whole : 1 / children.length));
}

// Make the small parts as large as the least, and the large ones smaller in turn; together they are `wanted`, or what
// the least of all of them are.
function widened(parts, least, wanted) {
  const total = Math.max(wanted, parts.length * least);
  let wide = parts.map(() => false);
  for (;;) {
    const given = parts.reduce((sum, part, i) => sum + (wide[i] ? 0 : part), 0);
    const scale = given > 0 ? (total - least * wide.filter(Boolean).length) / given : 0;
    const next = parts.map((part, i) => wide[i] || part * scale < least);
    if (next.every(Boolean)) return parts.map(() => total / parts.length);
    if (next.every((one, i) => one === wide[i])) return parts.map((part, i) => (wide[i] ? least : part * scale));
    wide = next;
  }
}
