// The models of the page: trees, documents, search. This file draws nothing.

class Model {
  constructor(raw) {
    Object.assign(this, raw.nodes); // columns: name, title, parent, size, own, words, documents, ...
    this.about = raw.about;
    this.docs = raw.documents; // columns: id, text, node, label, probability, ...
    this.positions = raw.positions;
    this.nodePositions = raw.nodePositions;
    this.evaluation = raw.evaluation;
    this.time = raw.time;
    this.expansion = raw.expansion;
    this.n = this.name.length;
    this.children = this.name.map(() => []);
    this.parent.forEach((parent, node) => parent !== null && this.children[parent].push(node));
    this.root = this.#findRoot();
    for (const list of this.children) list.sort((a, b) => this.size[b] - this.size[a] || a - b);
    this.byName = new Map(this.name.map((name, node) => [name, node]));
    this.scores = new Map((this.evaluation?.nodes ?? []).map((row) => [row.node, row]));
  }

  // The only root, or a new node above all roots.
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
    this.borderline?.push([]);
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

  // The node whose children are shown when a node is selected: the node, or its parent if it has no children.
  focus(node) {
    return this.children[node].length || this.parent[node] === null ? node : this.parent[node];
  }

  // The child of `above` that contains a node; null if the node is not below `above`.
  branch(node, above) {
    for (let at = node; at !== null; at = this.parent[at]) {
      if (this.parent[at] === above) return at;
    }
    return null;
  }

  // The node of a document: its label if that is a node of the classifier, else the predicted node.
  home(doc) {
    const label = this.about.kind === "classifier" ? first(this.docs.label[doc]) : null; // the name of a topic may equal a label
    return this.byName.get(label) ?? first(this.docs.node[doc]);
  }

  // Documents of the sample at or below a node, representative ones first.
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

  // Nodes whose title, name or words match, best first; then documents.
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

// Documents of a multilabel model have lists of values.
function first(value) {
  return Array.isArray(value) ? value[0] : value;
}

function listed(value) {
  return value === null || value === undefined ? [] : Array.isArray(value) ? value : [value];
}
