// Documents as points; colour and symbol show the branch of the focus.
//
// Both maps use the 3-D WebGL scatter of Plotly; the 2-D map is seen from above. Plotly's 2-D WebGL scatter compiles code
// at run time, which the content-security policy forbids.

const SCALE = 1e-4; // unit of the integer positions
const MOST_NAMES = 30;

function point(model, doc, axis) {
  return model.positions[3 * doc + axis] * SCALE;
}

// Documents of each branch of the focus; the eight largest branches have their own symbol.
function groups(model, focus) {
  const branches = model.children[focus].length ? model.children[focus] : [focus];
  const rankOf = new Map(branches.map((node, rank) => [node, rank]));
  const found = branches.slice(0, N_HUES).map((node, rank) => ({ node, rank, docs: [] }));
  const others = { node: null, rank: null, title: branches.length > N_HUES ? "other branches" : "outside", docs: [] };
  const outside = { node: null, rank: null, title: "outside", docs: [] };
  const home = new Map(); // branch of each node, computed once per node
  for (let doc = 0; doc < model.docs.id.length; doc++) {
    const at = model.home(doc);
    if (!home.has(at)) home.set(at, at === undefined || at === null ? null : focus === at ? focus : model.branch(at, focus));
    const rank = rankOf.get(home.get(at));
    if (rank === undefined) outside.docs.push(doc);
    else (found[rank] ?? others).docs.push(doc);
  }
  return [outside, others, ...found].filter((group) => group.docs.length);
}

function mapTraces(model, focus, flat) {
  const drawn = groups(model, focus);
  const size = model.docs.id.length > 20000 ? 2 : model.docs.id.length > 3000 ? 3 : 4.5;
  const traces = drawn.map((group) => ({
    type: "scatter3d",
    mode: "markers",
    name: plain(cut(group.node === null ? group.title : model.title[group.node], 32)),
    x: group.docs.map((doc) => point(model, doc, 0)),
    y: group.docs.map((doc) => point(model, doc, 1)),
    z: group.docs.map((doc) => (flat ? 0 : point(model, doc, 2))),
    // Tooltips are created on hover: fifty thousand of them would be slow.
    hoverinfo: "none",
    marker: {
      size,
      color: group.rank === null ? token("faint") : hue(group.rank),
      symbol: group.rank === null ? "circle" : SYMBOLS[group.rank % SYMBOLS.length],
      opacity: group.rank === null ? 0.45 : 0.75,
    },
  }));
  return { drawn, traces };
}

function scene(model, flat, host) {
  const none = { visible: false, showspikes: false };
  const more = { xaxis: none, yaxis: none, zaxis: none, uirevision: `${flat}` };
  if (!flat) return { ...more, aspectmode: "data", dragmode: "orbit", camera: { eye: { x: 0.9, y: 0.9, z: 0.7 } } };
  const width = (axis) => {
    let [low, high] = [Infinity, -Infinity];
    for (let i = axis; i < model.positions.length; i += 3) {
      low = Math.min(low, model.positions[i]);
      high = Math.max(high, model.positions[i]);
    }
    return Math.max(high - low, 1);
  };
  const [x, y] = [width(0), width(1)];
  // Seen from above, the scene is slightly more than two units high.
  const size = Math.min((2 * host.clientWidth) / Math.max(1, host.clientHeight) / x, 2 / y);
  return { ...more, zaxis: { ...none, range: [-1, 1] }, dragmode: "pan", aspectmode: "manual",
    aspectratio: { x: x * size, y: y * size, z: 0.1 },
    camera: { projection: { type: "orthographic" }, eye: { x: 0, y: 0, z: 2 }, up: { x: 0, y: 1, z: 0 } } };
}

// Names of the largest branches at their centres.
function names(model, focus, flat) {
  const near = model.children[focus].length ? model.children[focus] : [focus];
  const at = (node, axis) => model.nodePositions[3 * node + axis];
  return near.filter((node) => Number.isFinite(at(node, 0))).slice(0, MOST_NAMES).map((node) => ({
    x: at(node, 0) * SCALE, y: at(node, 1) * SCALE, z: flat ? 0 : at(node, 2) * SCALE, showarrow: false,
    text: plain(cut(model.title[node], 26)), font: { size: 12, color: token("ink") }, bgcolor: token("veil"), borderpad: 2,
  }));
}

function mapView(stage, model) {
  const host = make("div", { class: "plot fill", id: "map" });
  const tip = make("div", { class: "tip", hidden: true });
  const picker = make("div", { class: "picker", role: "group", "aria-label": "Dimensions" }, [2, 3].map((dimensions) =>
    make("button", { type: "button", "data-dimensions": dimensions, onclick: () => go({ dimensions }) }, `${dimensions}-D`)));
  const legend = make("ul", { class: "plain legend" });
  stage.replaceChildren(make("div", { class: "column full" }, make("div", { class: "tools" }, picker, legend), host, tip));
  const draw = async (chosen) => {
    const flat = state.dimensions !== 3;
    const focus = model.focus(chosen);
    for (const button of picker.children) button.setAttribute("aria-pressed", String(Number(button.dataset.dimensions) === (flat ? 2 : 3)));
    const { drawn, traces } = mapTraces(model, focus, flat);
    legend.replaceChildren(...drawn.toSorted((a, b) => (a.rank ?? N_HUES) - (b.rank ?? N_HUES)).map((group) => make("li", {}, glyph(group.rank),
      group.node === null ? group.title : nodeButton(model, group.node), make("span", { class: "number" }, whole.format(group.docs.length)))));
    const place = (event) => drawn[event.points[0].curveNumber]?.docs[event.points[0].pointNumber];
    await chart(host, traces, { showlegend: false, scene: { ...scene(model, flat, host), annotations: names(model, focus, flat) } }, {
      plotly_hover: (event) => showTip(tip, model, place(event), event),
      plotly_unhover: () => (tip.hidden = true),
      plotly_click: (event) => {
        const doc = place(event);
        if (doc !== undefined) showDocument(model, doc);
      },
    }, { scrollZoom: true, displayModeBar: false });
  };
  return { draw };
}

function showTip(tip, model, doc, event) {
  if (doc === undefined) return;
  const text = model.docs.text[doc] || (model.docs.words?.[doc] ?? []).map(([word]) => word).join(", ");
  tip.replaceChildren(make("b", {}, model.title[model.home(doc)] ?? ""), make("p", {}, cut(text, 220)));
  const { clientX = 0, clientY = 0 } = event.event ?? {};
  tip.hidden = false;
  tip.style.left = `${Math.min(clientX + 14, innerWidth - tip.offsetWidth - 12)}px`;
  tip.style.top = `${Math.min(clientY + 14, innerHeight - tip.offsetHeight - 12)}px`;
}

// Show a selected document above the details of its node.
function showDocument(model, doc) {
  const node = model.home(doc);
  const show = () => byId("details").prepend(make("section", { class: "found-document" }, make("h3", {}, "Document"),
    make("ul", { class: "plain documents" }, documentCard(model, doc))));
  if (node === state.node || node === undefined) {
    drawDetails(byId("details"), model, state.node);
    show();
  } else {
    go({ node }, show);
  }
}
