// Quality of a classifier: scores by node, confusions, calibration, comparison with a flat model.

const MEASURES = {
  f1: { label: "F1", of: (row) => row.f1, text: (value) => number(value, 2) },
  precision: { label: "Precision", of: (row) => row.precision, text: (value) => number(value, 2) },
  recall: { label: "Recall", of: (row) => row.recall, text: (value) => number(value, 2) },
  support: { label: "Support", of: (row) => row.support, text: (value) => whole.format(value) },
  gain: {
    label: "vs. flat",
    of: (row) => (row.baseline_f1 === null || row.baseline_f1 === undefined || row.f1 === null ? null : row.f1 - row.baseline_f1),
    text: (value) => signed(value, 2),
  },
};

// Position of a value on the colour ramp, from 0 to 1.
function rampPlace(model, measure, value) {
  if (measure === "gain") return 0.5 + 2 * value;
  if (measure !== "support") return value ** 2; // most values are high: give them more of the ramp
  const largest = Math.max(...[...model.scores.values()].map((row) => row.support), 2);
  return Math.log1p(value) / Math.log1p(largest);
}

function drawQualityTree(host, model, chosen, measure) {
  const { of, text } = MEASURES[measure];
  const value = (node) => {
    const row = model.scores.get(node);
    return row ? of(row) : null;
  };
  return drawIcicle(host, model, chosen, {
    colour: (row) => {
      const one = value(row.node);
      if (one === null) return token("sunk");
      return ramp(rampPlace(model, measure, one));
    },
    text: (node) => (value(node) === null ? "–" : text(value(node))),
    hover: (node) => {
      const row = model.scores.get(node);
      const title = make("b", {}, model.title[node] || "(no name)");
      if (!row) return [title, make("p", {}, "not tested")];
      const flat = row.baseline_f1 === null ? "" : `, flat model ${number(row.baseline_f1)}`;
      return [title, make("p", {}, `F1 ${number(row.f1)}${flat}`), make("p", {}, `precision ${number(row.precision)}, recall ${number(row.recall)}`),
        make("p", {}, `${count(row.support, "test document")}, ${whole.format(row.predicted)} predicted`)];
    },
  });
}

const SCORES = [["micro_f1", "Micro-F1"], ["macro_f1", "Macro-F1"], ["hierarchical_f1", "Hierarchical F1"],
  ["tree_induced_error", "Tree-induced error"], ["calibration_error", "Calibration error"]];

const OF_TREES = ["hierarchical_f1", "tree_induced_error"]; // say nothing more where all classes are below the root

function scoreCards(evaluation) {
  const flat = evaluation.baseline?.scores;
  const known = ([key]) => evaluation.scores[key] !== null && evaluation.scores[key] !== undefined;
  const tells = ([key]) => evaluation.levels.length > 2 || !OF_TREES.includes(key);
  return make("div", { class: "scores" }, SCORES.filter((one) => known(one) && tells(one))
    .map(([key, label]) => {
      const value = evaluation.scores[key];
      const other = flat?.[key];
      return make("div", { class: "score" }, make("span", {}, label), make("b", {}, number(value)),
        other === null || other === undefined ? "" : make("small", {}, `${signed(value - other)} vs. ${evaluation.baseline.name}`));
    }));
}

function confusionRow(model, row) {
  const examples = make("ul", { class: "plain documents", hidden: true });
  const open = make("button", { type: "button", class: "more", "aria-expanded": "false" }, count(row.documents.length, "example"));
  open.addEventListener("click", () => {
    if (!examples.children.length) examples.append(...row.documents.map((doc) => documentCard(model, doc)));
    examples.hidden = !examples.hidden;
    open.setAttribute("aria-expanded", String(!examples.hidden));
  });
  return make("li", {}, make("div", { class: "confusion" },
    make("span", { class: "pair" }, nodeButton(model, row.true), make("span", { class: "arrow", "aria-label": "predicted as" }, " → "),
      nodeButton(model, row.predicted)),
    make("span", { class: "number" }, whole.format(row.count)), make("span", { class: "number" }, percent(row.share, 0)),
    row.documents.length ? open : make("span")), examples);
}

function drawReliability(host, reliability) {
  const { confidence, accuracy, n_documents: sizes } = reliability;
  const total = sizes.reduce((a, b) => a + b, 0);
  const accent = token("accent");
  return chart(host, [
    { x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", color: token("mute"), width: 1 }, hoverinfo: "skip" },
    { x: confidence, y: accuracy, mode: "lines+markers", line: { color: accent, width: 1.5 },
      marker: { color: accent, size: sizes.map((size) => 6 + 22 * Math.sqrt(size / total)), opacity: 0.8, line: { width: 0 } },
      text: sizes.map((size, i) => `confidence ${percent(confidence[i])}<br>accuracy ${percent(accuracy[i])}<br>${count(size, "document")}`),
      hoverinfo: "text" },
  ], {
    margin: { l: 62, r: 12, t: 8, b: 42 }, showlegend: false,
    xaxis: { title: { text: "confidence" }, range: [0, 1.03], tickformat: ".0%", fixedrange: true },
    yaxis: { title: { text: "accuracy" }, range: [0, 1.03], tickformat: ".0%", fixedrange: true },
  }, {}, { displayModeBar: false });
}

function drawLevels(host, levels, name) {
  const x = levels.map((row) => `level ${row.level}`);
  const narrow = host.clientWidth < 520; // the numbers of two bars would touch
  const short = (value) => (narrow && value !== null ? number(value, 2).replace(/^0/, "").replace(/\.00$/, "") : number(value, 2));
  const part = (key, label, colour, pattern) => ({ type: "bar", name: label, x, y: levels.map((row) => row[key]),
    text: levels.map((row) => short(row[key])), textposition: "outside", cliponaxis: false, hoverinfo: "x+y+name",
    marker: { color: colour, pattern: { shape: pattern, fillmode: "overlay", fgcolor: token("ground"), solidity: 0.25, size: 6 } } });
  return chart(host, [part("macro_f1", "this model", token("accent"), ""), part("baseline_macro_f1", name, token("rest"), "/")], {
    margin: { l: 52, r: 8, t: 28, b: 28 }, barmode: "group", bargap: narrow ? 0.2 : 0.35,
    legend: { orientation: "h", x: 0, y: 1.12, yanchor: "bottom" },
    xaxis: { fixedrange: true, showgrid: false }, yaxis: { title: { text: "macro-F1" }, range: [0, 1.08], fixedrange: true },
  }, {}, { displayModeBar: false });
}

// Nodes with the largest gain and loss against the flat model, weighted by test documents.
function gains(model) {
  const rows = [...model.scores.values()].map((row) => ({ ...row, gain: MEASURES.gain.of(row) }))
    .filter((row) => row.gain !== null && row.support > 0);
  const weight = (row) => row.gain * row.support;
  rows.sort((a, b) => weight(b) - weight(a));
  const line = (row) => make("li", {}, nodeButton(model, row.node), make("span", { class: "number" }, signed(row.gain)),
    make("span", { class: "number mute" }, count(row.support, "test document")));
  const list = (title, some) => make("div", {}, make("h4", {}, title),
    some.length ? make("ul", { class: "plain gains" }, some.map(line)) : make("p", { class: "hint" }, "none"));
  return make("div", { class: "two" }, list("Helped most", rows.filter((row) => row.gain > 0).slice(0, 8)),
    list("Hurt most", rows.filter((row) => row.gain < 0).reverse().slice(0, 8)));
}

function signSentence(evaluation) {
  const test = evaluation.sign_test;
  if (!test) return "";
  const p = test.p_value ?? 1; // null if no document is right for one model only
  const verdict = p < 0.05 ? "a significant difference" : "not a significant difference";
  return make("p", { class: "meta" }, `Only this model is right on ${count(test.won, "test document")}, `,
    `only the ${evaluation.baseline.name} model on ${whole.format(test.lost)}: ${verdict} (sign test, p = ${p.toPrecision(2)}).`);
}

function measurePicker(measures) {
  return make("div", { class: "picker", role: "group", "aria-label": "Measure" }, measures.map((key) =>
    make("button", { type: "button", "data-measure": key, onclick: () => go({ measure: key }) }, MEASURES[key].label)));
}

function scale(measure) {
  const ends = { gain: ["−0.25", "+0.25"], support: ["few", "many"] }[measure] ?? ["0", "1"];
  const steps = [0, 1, 2, 3, 4].map((i) => make("i", { style: { "background-color": ramp(measure in { gain: 1, support: 1 } ? i / 4 : (i / 4) ** 2) } }));
  return make("span", { class: "scale", "aria-hidden": "true" }, ends[0], ...steps, ends[1]);
}

function qualityView(stage, model) {
  const { evaluation } = model;
  const compared = Boolean(evaluation.baseline);
  const host = treeHost("quality-tree", model);
  const picker = measurePicker(Object.keys(MEASURES).filter((key) => key !== "gain" || compared));
  const legend = make("span");
  const reliability = make("div", { class: "plot short", id: "reliability" });
  const levels = make("div", { class: "plot short", id: "levels" });
  const part = (title, hint, ...content) => make("section", { class: "panel" }, make("h3", {}, title), make("p", { class: "hint" }, hint), ...content);
  const panels = [
    evaluation.confusions.length ? part("Worst confusions", "True class → predicted class: number of documents, and share of the true class.",
      ...expandableList(evaluation.confusions, (row) => confusionRow(model, row), "ul", "plain confusions")) : null,
    evaluation.reliability ? part("Calibration", "On the dotted line, predictions with a confidence of 80% are right 80% of the time. Larger dots have more documents.", reliability) : null,
    compared ? part(`Where the hierarchy helped`, "F1 compared with a flat model trained on the same documents.", signSentence(evaluation),
      make("div", { class: "wide" }, levels, gains(model))) : null,
  ];
  stage.replaceChildren(make("div", { class: "column" },
    scoreCards(evaluation),
    make("p", { class: "hint" }, evaluation.n_train === null ? `Measured on the ${count(evaluation.n_test, "document")} given.`
      : `Measured on ${count(evaluation.n_test, "document")} not used for training; trained on ${whole.format(evaluation.n_train)}.`),
    make("div", { class: "tools" }, picker, legend), host, make("div", { class: "panels" }, panels)));
  const draw = async (chosen) => {
    const measure = state.measure === "gain" && !compared ? "f1" : state.measure;
    for (const button of picker.children) button.setAttribute("aria-pressed", String(button.dataset.measure === measure));
    legend.replaceChildren(scale(measure));
    await drawQualityTree(host, model, chosen, measure);
  };
  const redraw = async () => {
    if (evaluation.reliability) await drawReliability(reliability, evaluation.reliability);
    if (compared) await drawLevels(levels, evaluation.levels, evaluation.baseline.name);
  };
  return { draw, redraw };
}
