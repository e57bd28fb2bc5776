// The tree as an icicle: the focus on the left, its descendants to the right.

const LEVELS = 3;
const DEPTH_TINT = [0.1, 0.56, 0.38, 0.24];
const ONE_LINE = 20; // pixels; lower nodes show no title
const TWO_LINES = 46; // pixels; taller nodes show words below the title
const GAP = "\u2002"; // distance of the text from the edge

// As many words as fit on a line, without words of the title.
function fittingWords(words, title, room) {
  const used = new Set(title.split(/\W+/));
  let line = "";
  for (const [word] of words) {
    if (used.has(word)) continue;
    if (line.length + word.length + 2 > room * 1.1) break;
    line += (line ? ", " : "") + word;
  }
  return line;
}

// `style` has the functions colour(row), text(node) and hover(node).
function drawIcicle(host, model, chosen, style) {
  const focus = model.focus(chosen);
  const high = host.clientHeight || 600;
  const rows = slice(model, focus, LEVELS, ONE_LINE / high);
  const deepest = Math.max(...rows.map((row) => row.level));
  const room = Math.floor((host.clientWidth || 800) / (deepest + 1) / 7.4) - 2;
  const label = (row) => {
    if (row.part * high < 0.99 * ONE_LINE) return "";
    if (row.folded) return `${GAP}<i>${whole.format(row.folded)} ${row.folded === model.children[row.node].length ? "below" : "more"}</i>${GAP}`;
    const after = style.text(row.node);
    const title = `${GAP}${plain(cut(model.title[row.node], Math.max(4, room - after.length - 3)))}  ${after}${GAP}`;
    const words = row.part * high > TWO_LINES ? fittingWords(model.words[row.node], model.title[row.node], room) : "";
    return words ? `${title}<br>${GAP}<span style="font-size: 11px">${plain(words)}</span>` : title;
  };
  const mark = token("ink");
  const trace = {
    type: "icicle",
    ids: rows.map((row) => row.id),
    parents: rows.map((row) => row.parent),
    labels: rows.map((row) => plain(model.title[row.node])),
    values: rows.map((row) => row.value),
    text: rows.map(label),
    hovertext: rows.map((row) =>
      row.folded ? `${count(row.folded, "smaller one")}, listed on the right` : style.hover(row.node)),
    hoverinfo: "text",
    textinfo: "text",
    textposition: "middle left",
    textfont: { color: mark, size: 13 },
    sort: false,
    branchvalues: "remainder",
    tiling: { orientation: "h", pad: 1.5 },
    pathbar: { visible: false },
    root: { color: "rgba(0,0,0,0)" },
    marker: {
      colors: rows.map(style.colour),
      line: {
        color: rows.map((row) => (row.node === chosen && !row.folded ? mark : token("ground"))),
        width: rows.map((row) => (row.node === chosen && !row.folded && row.level ? 2.5 : 0)),
      },
    },
  };
  const click = (event) => {
    const row = rows[event.points[0].pointNumber];
    // The column on the left is the selected node: a click on it goes to its parent.
    const up = row.level === 0 && !row.folded && chosen === row.node;
    go({ node: up ? model.parent[row.node] ?? row.node : row.node });
    return false;
  };
  return chart(host, [trace], {}, { plotly_icicleclick: click },
    { displayModeBar: false });
}

function nodeHover(model, node) {
  const words = model.words[node].slice(0, 6).map(([word]) => word).join(", ");
  const lines = [
    `<b>${plain(cut(model.title[node], 60))}</b>`,
    `${count(model.size[node], "document")}, ${percent(model.share(node))}`,
  ];
  if (model.children[node].length) lines.push(count(model.children[node].length, "child", "children"));
  if (words) lines.push(wrapped(words, 46, 2));
  return lines.join("<br>");
}

function treeView(stage, model) {
  const host = make("div", { class: "plot fill", tabindex: "0", role: "application", id: "tree",
    "aria-label": "Tree. Right: first child; left: parent; up and down: siblings." });
  host.addEventListener("keydown", (event) => moveByKey(event, model));
  stage.replaceChildren(host);
  const draw = (chosen) => drawIcicle(host, model, chosen, {
    colour: (row) => (row.folded ? token("sunk") : mix(hue(row.branch), token("ground"), DEPTH_TINT[row.level])),
    text: (node) => whole.format(model.size[node]),
    hover: (node) => nodeHover(model, node),
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
  }[event.key];
  if (next === undefined || next === null) return;
  event.preventDefault();
  go({ node: next });
}
