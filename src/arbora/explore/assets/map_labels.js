// Names on the map: they never cover each other, and more of them appear when there is room.

const MOST_ANCHORS = 600; // nodes that can have a name
const MOST_LABELS = 45; // names at a time
const SAMPLED = 400; // documents that decide where a name is
const LABEL_HEIGHT = 20;
const CLOSE = 1.5; // zoom from which nodes are named by their visible documents
const OFFSETS = [[0, 0], [0, -16], [0, 16], [0, -30], [0, 30], [40, 0], [-40, 0]];

// Where the documents of a node are densest, and how far they are spread; null without documents.
function anchor(model, docs, x, y) {
  const step = Math.max(1, Math.floor(docs.length / SAMPLED));
  const some = docs.filter((_, i) => i % step === 0);
  if (!some.length) return null;
  const middle = (list) => list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];
  let at = [middle(some.map((doc) => x[doc])), middle(some.map((doc) => y[doc]))];
  const apart = (doc) => Math.hypot(x[doc] - at[0], y[doc] - at[1]);
  const spread = middle(some.map(apart)) || 1e-3;
  // Mean shift from the document nearest to the median: a topic of several islands is named on the largest one.
  const nearest = some.reduce((best, doc) => (apart(doc) < apart(best) ? doc : best), some[0]);
  at = [x[nearest], y[nearest]];
  for (let round = 0; round < 8; round++) {
    const weights = some.map((doc) => Math.exp(-((apart(doc) / (0.6 * spread + 1e-3)) ** 2)));
    const total = weights.reduce((a, b) => a + b, 0);
    at = [x, y].map((list) => some.reduce((sum, doc, i) => sum + weights[i] * list[doc], 0) / total);
  }
  return { x: at[0], y: at[1], spread };
}

class MapLabels {
  constructor(host, model, map) {
    Object.assign(this, { model, map, widths: new Map(), anchors: new Map() });
    this.layer = make("div", { class: "map-labels" });
    host.append(this.layer);
    this.brush = make("canvas").getContext("2d");
  }

  #anchorOf(node) {
    if (!this.anchors.has(node)) this.anchors.set(node, anchor(this.model, this.model.documentsOf(node), this.map.x, this.map.y));
    return this.anchors.get(node);
  }

  #text(node) {
    return cut(this.model.title[node] || "(no name)", 30);
  }

  #width(node, size) {
    const text = this.#text(node);
    const key = `${size} ${text}`;
    if (!this.widths.has(key)) {
      this.brush.font = `600 ${size}px ${token("font")}`;
      this.widths.set(key, this.brush.measureText(text).width + 24);
    }
    return this.widths.get(key);
  }

  // Nodes that may be named, the most important first: the selected one, then level by level, the largest first.
  #candidates(focus, chosen) {
    const found = chosen === this.model.root ? [] : [{ node: chosen, level: 0 }];
    let level = this.model.children[focus].length ? this.model.children[focus] : [focus];
    for (let depth = 1; level.length && found.length < MOST_ANCHORS; depth++) {
      const next = level.filter((node) => node !== chosen && this.model.size[node] > 0).sort((a, b) => this.model.size[b] - this.model.size[a]);
      found.push(...next.map((node) => ({ node, level: depth })));
      level = level.flatMap((node) => this.model.children[node]);
    }
    return found.slice(0, MOST_ANCHORS);
  }

  // Nodes whose densest place is outside the window are named in the middle of their visible documents.
  #visible() {
    const { map, model } = this;
    const found = new Map();
    if (map.zoom < CLOSE) return found;
    const [[left, top], [right, bottom]] = [map.world(0, 0), map.world(map.width, map.height)];
    for (let doc = 0; doc < map.x.length; doc++) {
      if (!(map.x[doc] > left && map.x[doc] < right && map.y[doc] > bottom && map.y[doc] < top)) continue;
      for (let at = model.home(doc) ?? null; at !== null && at !== model.root; at = model.parent[at]) {
        if (!found.has(at)) found.set(at, []);
        found.get(at).push(doc);
      }
    }
    return found;
  }

  #spot(at, docs) {
    const [px, py] = this.map.screen(at.x, at.y);
    const isVisible = px >= 0 && py >= 0 && px <= this.map.width && py <= this.map.height;
    if (isVisible || !docs || docs.length < 3) return isVisible ? [px, py] : null;
    const middle = (list) => docs.map((doc) => list[doc]).sort((a, b) => a - b)[Math.floor(docs.length / 2)];
    return this.map.screen(middle(this.map.x), middle(this.map.y));
  }

  place(focus, chosen) {
    const { map, model } = this;
    const visible = this.#visible();
    const taken = [];
    const shown = [];
    for (const { node, level } of this.#candidates(focus, chosen)) {
      if (shown.length >= MOST_LABELS) break;
      const at = this.#anchorOf(node);
      if (!at) continue;
      const size = level > 1 ? 11.5 : Math.min(14.5, 12 + 2.5 * Math.sqrt(model.size[node] / Math.max(1, model.size[focus])));
      const width = this.#width(node, size);
      // A deeper level is named when its documents fill a part of the screen.
      if (level > 1 && 2.4 * at.spread * map.scale < 0.45 * width) continue;
      const spot = this.#spot(at, visible.get(node));
      if (!spot) continue;
      const [px, py] = spot;
      const box = OFFSETS.map(([dx, dy]) => ({ x: Math.max(width / 2 + 2, Math.min(map.width - width / 2 - 2, px + dx)),
        y: Math.max(14, Math.min(map.height - 14, py + dy)), w: width, h: LABEL_HEIGHT }))
        .find((one) => taken.every((other) => Math.abs(one.x - other.x) * 2 > one.w + other.w || Math.abs(one.y - other.y) * 2 > one.h + other.h));
      if (!box) continue;
      taken.push(box);
      shown.push({ node, box, size, level });
    }
    this.#show(shown, chosen);
  }

  #show(shown, chosen) {
    const old = new Map([...this.layer.children].map((one) => [Number(one.dataset.node), one]));
    for (const { node, box, size, level } of shown) {
      let label = old.get(node);
      old.delete(node);
      if (!label) {
        label = make("button", { type: "button", class: "map-label", "data-node": node, title: this.model.title[node], onclick: () => go({ node }) },
          dot(this.model, node), make("span", {}, this.#text(node)));
        this.layer.append(label);
      }
      label.classList.toggle("now", node === chosen);
      label.classList.toggle("deep", level > 1);
      label.style.fontSize = `${size}px`;
      label.style.transform = `translate(${Math.round(box.x - box.w / 2)}px, ${Math.round(box.y - box.h / 2)}px)`;
    }
    for (const label of old.values()) label.remove();
  }

  clear() {
    this.layer.replaceChildren();
  }
}
