// The tree as an icicle: the focus on the left, its descendants to the right. It scrolls; only visible rows are drawn.

const DEPTH_TINT = [0.1, 0.5, 0.36, 0.24];
const TWO_LINES = 42; // pixels; taller nodes show words below the title
const THREE_LINES = 64; // pixels; taller nodes show two lines of words
const MARGIN = 300; // pixels above and below the visible part that are drawn too

// Words that are not part of the title.
function furtherWords(model, node) {
  const title = model.title[node].toLowerCase();
  return model.words[node].map(([word]) => word).filter((word) => !title.includes(word.toLowerCase())).slice(0, 8).join(", ");
}

// `style` has the functions colour(row), text(node) and hover(node).
function drawIcicle(host, model, chosen, style) {
  const focus = model.focus(chosen);
  const narrow = (host.clientWidth || 800) < 560;
  const { rows, levels, high } = icicle(model, focus, (host.clientHeight || 600) - 2, narrow ? 2 : MOST_LEVELS);
  const deepest = Math.max(...rows.map((row) => row.level));
  const columns = deepest === 0 ? [1] : [narrow ? 0.07 : 0.2, ...Array(deepest).fill((1 - (narrow ? 0.07 : 0.2)) / deepest)];
  const left = columns.map((_, i) => 100 * columns.slice(0, i).reduce((a, b) => a + b, 0));
  const same = host.dataset.focus === String(focus) && host.dataset.levels === String(levels);
  const area = make("div", { class: "icicle", role: "presentation", style: { height: `${high}px` } });
  const drawn = new Map();
  const row = (one) => make("div", {
    class: narrow && !one.level && deepest ? "slice bare" : "slice", title: narrow ? model.title[one.node] : false, id: `${host.id}-${one.node}`, role: "treeitem", "aria-level": one.level + 1, "aria-selected": String(one.node === chosen),
    "aria-expanded": model.children[one.node].length ? String(!one.hidden) : false, "data-node": one.node,
    style: { left: `${left[one.level]}%`, width: `${100 * columns[one.level]}%`, top: `${one.top}px`, height: `${one.height}px` },
    onclick: () => goFromTree(model, one, chosen), onmousemove: (event) => showTip(event, ...style.hover(one.node)), onmouseleave: hideTip,
  }, make("div", { class: "fill", style: { "background-color": style.colour(one), "--edge": style.edge?.(one) ?? "transparent" } },
    make("div", { class: one.height > THREE_LINES ? "label" : one.height > TWO_LINES ? "label one" : "label low", style: one.height > TWO_LINES ? {} : { "line-height": `${one.height - 2}px` } },
      make("span", { class: "title" }, model.title[one.node] || "(no name)"), " ", make("span", { class: "number" }, style.text(one.node), one.hidden ? " ▸" : one.scrolls ? ` · ${count(model.children[one.node].length, "child", "children")} ↕` : ""),
      make("small", {}, furtherWords(model, one.node)))));
  const update = () => {
    const [from, to] = [host.scrollTop - MARGIN, host.scrollTop + (host.clientHeight || 600) + MARGIN];
    rows.forEach((one, i) => {
      if (one.nest) return;
      const visible = one.top < to && one.top + one.height > from;
      if (visible && !drawn.has(i)) area.append(drawn.set(i, row(one)).get(i));
      else if (!visible && drawn.has(i)) {
        drawn.get(i).remove();
        drawn.delete(i);
      }
    });
  };
  hideTip();
  const before = host.scrollTop;
  host.replaceChildren(area);
  host.dataset.focus = focus;
  host.dataset.levels = levels;
  host.onscroll = update;
  const at = rows.find((one) => one.node === chosen && one.level);
  host.scrollTop = same ? before : 0;
  // The selected node is visible.
  if (at && (at.top + at.height < host.scrollTop + ROW || at.top > host.scrollTop + host.clientHeight - ROW)) {
    host.scrollTop = at.top - host.clientHeight / 3;
  }
  update();
  // Children that scroll beside their branch are drawn at once.
  const nests = new Map();
  for (const one of rows.filter((other) => other.nest)) {
    const { branch, top, height } = one.nest;
    if (!nests.has(branch)) {
      nests.set(branch, make("div", { class: "nest", role: "group", tabindex: "-1", "aria-label": model.title[branch] || "(no name)",
        style: { left: `${left[1 + 1]}%`, width: `${100 * columns[2]}%`, top: `${top}px`, height: `${height}px` } }));
      area.append(nests.get(branch));
    }
    const made = row(one);
    [made.style.left, made.style.width] = ["0", "100%"];
    nests.get(branch).append(made);
  }
  host.setAttribute("aria-activedescendant", `${host.id}-${chosen}`);
}

// The column on the left is the selected node: a click on it goes to its parent.
function goFromTree(model, row, chosen) {
  const up = row.level === 0 && chosen === row.node;
  go({ node: up ? model.parent[row.node] ?? row.node : row.node });
}

function nodeTip(model, node) {
  const words = model.words[node].slice(0, 8).map(([word]) => word).join(", ");
  const below = model.children[node].length;
  return [make("b", {}, model.title[node] || "(no name)"),
    make("p", {}, `${count(model.size[node], "document")}, ${percent(model.share(node))}${below ? `; ${count(below, "child", "children")}` : ""}`),
    words ? make("p", { class: "mute" }, words) : ""];
}

function treeHost(id, model) {
  const host = make("div", { class: "scroller", tabindex: "0", role: "tree", id,
    "aria-label": "Tree. Right: first child; left: parent; up and down: siblings." });
  host.addEventListener("keydown", (event) => moveByKey(event, model));
  return host;
}

function treeView(stage, model) {
  const host = treeHost("tree", model);
  host.classList.add("fill");
  stage.replaceChildren(host);
  const draw = (chosen) => drawIcicle(host, model, chosen, {
    colour: (row) => mix(nodeColour(model, row.node), token("ground"), DEPTH_TINT[row.level]),
    edge: (row) => (row.level ? nodeColour(model, row.node) : "transparent"),
    text: (node) => whole.format(model.size[node]),
    hover: (node) => nodeTip(model, node),
  });
  return { draw, focus: () => host.focus() };
}

// Move in the tree with the arrow keys.
function moveByKey(event, model) {
  const node = state.node;
  const siblings = model.parent[node] === null ? [node] : model.children[model.parent[node]];
  const at = siblings.indexOf(node);
  const next = {
    ArrowRight: model.children[node][0],
    ArrowLeft: model.parent[node],
    ArrowUp: siblings[at - 1],
    ArrowDown: siblings[at + 1],
    Home: siblings[0],
    End: siblings.at(-1),
  }[event.key];
  if (next === undefined || next === null) return;
  event.preventDefault();
  go({ node: next });
}
