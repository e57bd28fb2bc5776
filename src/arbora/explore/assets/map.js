// Documents as points; colour and shape show the branch of the focus. Three dimensions are drawn by Plotly.

const TOOLS = [["pan", "Move", { title: "Drag to move, scroll to zoom" }], ["lasso", "Lasso", { title: "Draw around documents to list and save them" }],
  ["box", "Box", { title: "Draw a rectangle around documents" }]];

// The branch of the focus that each document belongs to; null outside the focus.
function branchesOf(model, focus) {
  const leaf = !model.children[focus].length;
  const known = new Map();
  return model.docs.id.map((_, doc) => {
    const at = model.home(doc);
    if (at === undefined || at === null) return null;
    if (!known.has(at)) known.set(at, leaf || at === focus ? (at === focus ? focus : null) : model.branch(at, focus));
    return known.get(at);
  });
}

// How each point looks: bright in the selected node, pale elsewhere; selected documents have a ring.
function pointLooks(model, focus, chosen, picked) {
  const branches = branchesOf(model, focus);
  const [ring, many] = [token("ink"), model.docs.id.length > 6000];
  const leaf = chosen !== focus;
  const home = new Map(); // looks are shared by points
  return branches.map((branch, doc) => {
    if (!Number.isFinite(model.positions[3 * doc])) return null;
    const at = model.home(doc);
    const inside = branch !== null && (!leaf || branch === chosen);
    const mark = picked.size ? picked.has(doc) : false;
    const key = `${branch ?? at} ${inside} ${mark}`;
    if (!home.has(key)) {
      const node = branch ?? (at === undefined ? model.root : at);
      const dim = picked.size ? !mark : !inside;
      home.set(key, { colour: nodeColour(model, node), shape: rankOf(model, node), alpha: dim ? 0.16 : mark ? 1 : many ? 0.72 : 0.82,
        ring: mark && picked.size < 400 ? ring : "", front: !dim });
    }
    return home.get(key);
  });
}

function mapLegend(model, focus) {
  const counts = new Map();
  for (const branch of branchesOf(model, focus)) if (branch !== null) counts.set(branch, (counts.get(branch) ?? 0) + 1);
  const branches = model.children[focus].length ? [...model.children[focus], focus] : [focus];
  return branches.filter((node) => counts.get(node)).map((node) => make("li", { "data-node": node, class: node === state.node ? "now" : "" },
    dot(model, node), nodeButton(model, node), make("span", { class: "number" }, whole.format(counts.get(node)))));
}

function mapView(stage, model) {
  const host = make("div", { class: "map", id: "map", tabindex: "0", role: "application",
    "aria-label": "Map of documents. Arrow keys move, plus and minus zoom, 0 shows all, Escape clears the selection. Names are buttons." });
  const solid = make("div", { class: "plot fill", id: "map3", hidden: true });
  const deep = hasDepth(model);
  let tool = "pan";
  const tools = picker("Tool", TOOLS, tool, (key) => {
    tool = key;
    tools.show(key);
    host.dataset.tool = key;
  });
  const dimensions = picker("Dimensions", [[2, "2-D"], [3, "3-D"]].map(([n, text]) => [n, text, { "data-dimensions": n }]), state.dimensions, (key) => go({ dimensions: key }));
  const pick = make("button", { type: "button", class: "small", id: "select-topic", onclick: () => {
    select(model, model.documentsOf(state.node), `all documents of “${model.title[state.node] || "(no name)"}” on this page`);
  } }, "Select documents of this node");
  const zoom = (text, label, act) => make("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const legend = make("ul", { class: "plain legend", id: "legend", "aria-label": "Branches" });
  host.append(make("div", { class: "zoom" }, zoom("+", "Zoom in", () => map.zoomBy(1.5)), zoom("−", "Zoom out", () => map.zoomBy(1 / 1.5)), zoom("⤢", "Show all", () => map.reset())));
  stage.replaceChildren(make("div", { class: "column full" }, make("div", { class: "tools" }, tools, deep ? dimensions : "", pick), legend, host, solid));
  const at = (axis) => Array.from({ length: model.docs.id.length }, (_, doc) => model.positions[3 * doc + axis] * SCALE);
  const place = { focus: model.root, chosen: model.root };
  const [x, y] = stretched(at(0), at(1), host.clientWidth / Math.max(1, host.clientHeight));
  const map = new MapCanvas(host, x, y, () => {
    labels.place(place.focus, place.chosen);
    host.dataset.zoom = map.zoom.toFixed(2);
  });
  const labels = new MapLabels(host, model, map);
  const paint = () => {
    map.looks = pointLooks(model, place.focus, place.chosen, selectedDocs(model));
    map.draw();
  };
  followPointer(host, map, model, () => tool);
  host.addEventListener("keydown", (event) => mapKeys(event, map, model));
  const draw = async (chosen) => {
    Object.assign(place, { chosen, focus: model.focus(chosen) });
    const flat = !deep || state.dimensions !== 3;
    dimensions.show(flat ? 2 : 3);
    [host.hidden, solid.hidden] = [!flat, flat];
    legend.replaceChildren(...mapLegend(model, place.focus));
    if (!flat) return drawSolid(solid, model, place.focus);
    map.resize();
    paint();
    return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  };
  return { draw, select: paint, focus: () => host.focus(), map };
}

// Only nearness means something on the map: stretch it a little to fill the window.
function stretched(x, y, shape) {
  const size = (list) => list.reduce((most, one) => Math.max(most, Math.abs(one) || 0), 1e-9);
  const by = Math.max(0.8, Math.min(1.35, (shape * size(y)) / size(x)));
  return [x.map((one) => one * by), y];
}

function mapKeys(event, map, model) {
  if (event.target !== map.host) return;
  const act = { ArrowLeft: () => map.pan(60, 0), ArrowRight: () => map.pan(-60, 0), ArrowUp: () => map.pan(0, 60), ArrowDown: () => map.pan(0, -60),
    "+": () => map.zoomBy(1.4), "=": () => map.zoomBy(1.4), "-": () => map.zoomBy(1 / 1.4), 0: () => map.reset(),
    Escape: () => select(model, [], "") }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

// Drag to move or to draw a lasso or a box; click to open a document; scroll or pinch to zoom.
function followPointer(host, map, model, tool) {
  const down = new Map();
  let drag = null;
  const spot = (event) => {
    const box = host.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  host.addEventListener("pointerdown", (event) => {
    if (event.target.closest("button") || event.button > 0) return;
    host.setPointerCapture(event.pointerId);
    down.set(event.pointerId, spot(event));
    drag = { from: spot(event), last: spot(event), moved: false, tool: event.shiftKey && tool() === "pan" ? "lasso" : tool(), path: [spot(event)] };
    hideTip();
  });
  host.addEventListener("pointermove", (event) => {
    const to = spot(event);
    if (!down.has(event.pointerId)) {
      if (event.target.closest("button")) return hideTip();
      return hoverPoint(event, model, map.nearest(...to));
    }
    if (down.size === 2) pinch(map, down, event.pointerId, to);
    else moveDrag(map, drag, to);
    down.set(event.pointerId, to);
    return null;
  });
  const end = (event) => {
    if (!down.delete(event.pointerId) || down.size) return;
    finishDrag(map, model, drag, event.type === "pointercancel");
    drag = null;
  };
  host.addEventListener("pointerup", end);
  host.addEventListener("pointercancel", end);
  host.addEventListener("pointerleave", hideTip);
  host.addEventListener("dblclick", (event) => !event.target.closest("button") && map.zoomBy(2, ...spot(event)));
  host.addEventListener("wheel", (event) => {
    event.preventDefault();
    map.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), ...spot(event));
  }, { passive: false });
}

function pinch(map, down, id, to) {
  const [other] = [...down].filter(([key]) => key !== id).map(([, at]) => at);
  const before = Math.hypot(down.get(id)[0] - other[0], down.get(id)[1] - other[1]);
  const after = Math.hypot(to[0] - other[0], to[1] - other[1]);
  map.zoomBy(after / Math.max(1, before), (to[0] + other[0]) / 2, (to[1] + other[1]) / 2);
}

function moveDrag(map, drag, to) {
  drag.moved ||= Math.hypot(to[0] - drag.from[0], to[1] - drag.from[1]) > 4;
  if (drag.tool === "pan") map.pan(to[0] - drag.last[0], to[1] - drag.last[1]);
  else {
    drag.path.push(to);
    const [[a, b], [c, d]] = [drag.from, to];
    map.path = drag.tool === "box" ? [[a, b], [c, b], [c, d], [a, d]] : drag.path;
    map.draw();
  }
  drag.last = to;
}

function finishDrag(map, model, drag, cancelled) {
  const path = map.path;
  map.path = null;
  if (cancelled) return map.draw();
  if (drag.moved && path) return select(model, map.inside(path), drag.tool === "box" ? "inside a box on the map" : "inside a lasso on the map");
  const doc = drag.moved ? undefined : map.nearest(...drag.from);
  return doc === undefined ? map.draw() : showDocument(model, doc);
}

function hoverPoint(event, model, doc) {
  if (doc === undefined) return hideTip();
  const text = model.docs.text[doc] || (model.docs.words?.[doc] ?? []).map(([word]) => word).join(", ");
  const node = model.home(doc);
  return showTip(event, make("b", {}, dot(model, node), " ", model.title[node] ?? ""), make("p", {}, cut(text, 220)));
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
