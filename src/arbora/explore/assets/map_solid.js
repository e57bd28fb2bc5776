// The map in three dimensions, for layouts that have them (linear ones): the WebGL scatter of Plotly.

const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "circle-open", "square-open", "diamond-open"];

function hasDepth(model) {
  for (let at = 2; at < model.positions.length; at += 3) if (model.positions[at]) return true;
  return false;
}

function drawSolid(host, model, focus) {
  const groups = new Map();
  branchesOf(model, focus).forEach((branch, doc) => {
    const key = branch ?? -1;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(doc);
  });
  const drawn = [...groups].sort(([a], [b]) => a - b);
  const place = (docs, axis) => docs.map((doc) => model.positions[3 * doc + axis] * SCALE);
  const traces = drawn.map(([node, docs]) => ({
    type: "scatter3d", mode: "markers", name: plain(node < 0 ? "outside" : model.title[node]), x: place(docs, 0), y: place(docs, 1), z: place(docs, 2),
    hoverinfo: "none", // tooltips are made on hover
    marker: { size: model.docs.id.length > 3000 ? 3 : 4.5, color: node < 0 ? token("faint") : nodeColour(model, node),
      symbol: node < 0 ? "circle" : SYMBOLS[rankOf(model, node) % SYMBOLS.length], opacity: node < 0 ? 0.3 : 0.75 },
  }));
  const none = { visible: false, showspikes: false };
  const doc = (event) => drawn[event.points[0].curveNumber]?.[1][event.points[0].pointNumber];
  return chart(host, traces, { showlegend: false, scene: { xaxis: none, yaxis: none, zaxis: none, aspectmode: "data", dragmode: "orbit", uirevision: "3",
    camera: { eye: { x: 0.9, y: 0.9, z: 0.7 } } } }, {
    plotly_hover: (event) => hoverPoint(event.event, model, doc(event)),
    plotly_unhover: hideTip,
    plotly_click: (event) => doc(event) !== undefined && showDocument(model, doc(event)),
  }, { scrollZoom: true, displayModeBar: false });
}
