// The panel beside every view: words, documents and children of the selected node.

const PAGE_SIZE = 12; // documents or children in a list before "Show more"

function nodeButton(model, node, more = {}) {
  return make("button", { type: "button", class: "link", title: model.name[node] || false, onclick: () => go({ node }), ...more }, model.title[node] || "(no name)");
}

function section(title, ...content) {
  return make("section", {}, make("h3", {}, title), ...content);
}

// A list that shows its first items, with a button for more.
function expandableList(items, draw, tag = "ul", className = "plain") {
  const list = make(tag, { class: className });
  const more = make("button", { type: "button", class: "more" });
  const grow = (n) => {
    const from = list.children.length;
    list.append(...items.slice(from, from + n).map(draw));
    const left = items.length - list.children.length;
    more.hidden = left === 0;
    const next = Math.min(left, 5 * PAGE_SIZE);
    more.textContent = `Show ${whole.format(next)} ${next < left ? `of ${whole.format(left)} ` : ""}more`;
  };
  more.addEventListener("click", () => grow(5 * PAGE_SIZE));
  grow(PAGE_SIZE);
  return [list, more];
}

function labelLine(model, doc) {
  const { label, node, probability } = model.docs;
  const predicted = listed(node[doc]);
  const truth = listed(label[doc]);
  const sure = listed(probability[doc]);
  const parts = predicted.map((one, i) => [i ? ", " : "", nodeButton(model, one),
    sure[i] === null || sure[i] === undefined ? "" : ` ${percent(sure[i], 0)}`]).flat();
  const state = model.docs.state?.[doc];
  if (state) return make("p", { class: "meta" }, `${state} `, ...(state === "labelled" ? parts.slice(0, 2) : parts));
  // Labels are nodes of a classifier; the name of a topic may equal a label by chance.
  const ours = model.about.kind === "classifier";
  const verb = model.about.kind === "clusters" ? "in" : "predicted";
  const names = new Set(ours ? predicted.map((one) => model.name[one]) : []);
  const wrong = truth.filter((name) => !names.has(name));
  if (!wrong.length) return make("p", { class: "meta" }, ...parts);
  const truths = wrong.map((name, i) => [i ? ", " : "",
    ours && model.byName.has(name) ? nodeButton(model, model.byName.get(name)) : name]).flat();
  return make("p", { class: "meta" }, "labelled ", ...truths, `, ${verb} `, ...parts);
}

function documentCard(model, doc) {
  const text = model.docs.text[doc] || (model.docs.words?.[doc] ?? []).map(([word, value]) => `${word} ${value}`).join(", ");
  const body = make("p", { class: "text" }, text || "(empty)");
  const open = make("button", { type: "button", class: "card", "aria-expanded": "false", "data-document": doc }, body);
  open.addEventListener("click", () => {
    const wide = open.getAttribute("aria-expanded") === "false";
    open.setAttribute("aria-expanded", String(wide));
  });
  return make("li", {}, open, make("p", { class: "source" }, model.docs.id[doc]), labelLine(model, doc));
}

function figure(value, label) {
  return make("div", { class: "figure" }, make("b", {}, value), make("span", {}, label));
}

function scoreFigures(score) {
  return make("div", { class: "figures" }, figure(number(score.f1), "F1"), figure(number(score.precision), "precision"),
    figure(number(score.recall), "recall"), figure(whole.format(score.support), "tested"),
    score.baseline_f1 === null ? null : figure(signed(score.f1 - score.baseline_f1), "vs. flat"));
}

function childRow(model, node) {
  const parent = model.parent[node];
  const largest = Math.max(1, model.size[model.children[parent][0]]);
  return make("li", {}, dot(model, node), nodeButton(model, node), bar(model.size[node] / largest, nodeColour(model, node)),
    make("span", { class: "number" }, whole.format(model.size[node])));
}

function settings(model) {
  const { about } = model;
  const rows = [["Kind", about.kind], ["Estimator", about.estimator], ["Documents", whole.format(about.n_documents)],
    ["Shown", whole.format(model.docs.id.length)], ["Nodes", whole.format(about.n_nodes)],
    ["Words", whole.format(about.n_features)], ["Created", about.created], ["Arbora", about.arbora],
    ...Object.entries(about.settings ?? {}).map(([key, value]) =>
      [key, typeof value === "string" ? value : value?.why ?? JSON.stringify(value)])];
  const lines = (value) => (Array.isArray(value) ? value.map((line) => make("div", {}, String(line))) : [String(value ?? "–")]);
  return make("dl", { class: "settings" }, rows.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, ...lines(value))]));
}

// Known and new groups: documents by state, and how probable the documents of a new group are on average.
function groupFigures(model, node) {
  const states = model.states?.[node];
  if (!states || node === model.root) return [];
  const figures = Object.entries(states).filter(([, n]) => n).map(([state, n]) => figure(whole.format(n), state));
  const sure = model.confidence?.[node];
  return sure === null || sure === undefined ? figures : [...figures, figure(percent(sure, 0), "mean probability")];
}

function proposalRow(model, names, documents) {
  const groups = names.map((name, i) => [i ? " and " : "", model.byName.has(name) ? nodeButton(model, model.byName.get(name)) : name]).flat();
  const examples = make("div", { class: "sides" }, documents.map((side) => make("ul", { class: "plain documents" }, side.map((doc) => documentCard(model, doc)))));
  return make("li", {}, make("details", {}, make("summary", {}, ...groups), examples));
}

// What an extended collection has learned: shown at the root.
function expansionSections(model) {
  const { n_new: n, range, given, sure, features, splits, merges } = model.expansion;
  const [low, high] = range;
  const about = given ? "" : ` The number is an estimate; probably ${low} to ${high}.`;
  const list = (title, rows, names) => rows.length
    ? section(title, make("ul", { class: "plain proposals" }, rows.map((row) => proposalRow(model, names(row), row.documents)))) : "";
  return [
    section("New groups", make("p", {}, `${count(n, "new group")}.${about} Documents with a probability of at least ${percent(sure, 0)} are filed; the others are proposals.`)),
    features.length ? section("What separates the known groups", wordBars(features)) : "",
    list("Known groups to split?", splits, (row) => [row.group]),
    list("Known groups to merge?", merges, (row) => row.groups),
  ];
}

// Labels of a cluster: share of its rows, and how far the share is from that of all rows, in standard errors.
function labelShares(rows, colour) {
  return make("ul", { class: "plain words" }, rows.map(([name, share, residual]) =>
    make("li", { title: `adjusted residual ${signed(residual)}` }, make("span", { class: "word" }, name), bar(share, colour),
      make("span", { class: "number" }, percent(share, 0)))));
}

// Features that set a cluster apart: its mean and deviation, beside the mean of all rows.
function profileTable(rows) {
  const short = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const cell = (value) => make("td", { class: "number" }, value);
  return make("table", { class: "profile" },
    make("thead", {}, make("tr", {}, ["feature", "mean", "deviation", "all", "difference"].map((name) => make("th", {}, name)))),
    make("tbody", {}, rows.map(([name, mean, deviation, all, difference]) => make("tr", {}, make("td", {}, name),
      cell(short(mean)), cell(short(deviation)), cell(short(all)), cell(signed(difference))))));
}

function drawDetails(host, model, node) {
  const children = model.children[node];
  const docs = model.documentsOf(node);
  const borderline = model.borderline?.[node] ?? [];
  const score = model.scores.get(node);
  const more = (model.more_parents?.[node] ?? []).map((one, i) => [i ? ", " : "", nodeButton(model, one)]).flat();
  const unit = model.about.kind === "clusters" ? "row" : "document";
  const figures = [figure(whole.format(model.size[node]), model.size[node] === 1 ? unit : `${unit}s`),
    figure(percent(model.share(node)), "of all"),
    children.length ? figure(whole.format(children.length), children.length === 1 ? "child" : "children") : null,
    children.length && model.own[node] ? figure(whole.format(model.own[node]), "at this node") : null];
  const concentration = model.concentration?.[node];
  figures.push(...groupFigures(model, node));
  if (concentration) figures.push(figure(whole.format(Number(concentration.toPrecision(3))), "concentration"));
  host.replaceChildren(
    selectionSection(model),
    make("h2", { id: "chosen" }, node === model.root ? "" : dot(model, node), make("span", { class: "text" }, model.title[node] || "(no name)")),
    model.name[node] && model.name[node] !== model.title[node] ? make("p", { class: "source" }, model.name[node]) : "",
    more.length ? make("p", { class: "meta" }, "also under ", ...more) : "",
    make("div", { class: "figures" }, figures),
    editSection(model, node),
    ...(node === model.root && model.expansion ? expansionSections(model) : []),
    score && node !== model.root ? section("Quality", scoreFigures(score)) : "",
    model.labels?.[node]?.length ? section("Labels", labelShares(model.labels[node])) : "",
    model.profile?.[node]?.length ? section("Profile", profileTable(model.profile[node])) : "",
    ...wordSections(model, node),
    children.length ? section("Children", ...expandableList(children, (child) => childRow(model, child), "ul", "plain children")) : "",
    docs.length ? section(unit === "row" ? "Rows" : "Documents", ...expandableList(docs, (doc) => documentCard(model, doc), "ul", "plain documents")) : "",
    borderline.length ? section("Borderline documents", ...expandableList(borderline, (doc) => documentCard(model, doc), "ul", "plain documents")) : "",
    node === model.root ? section("About this model", settings(model)) : "",
  );
  host.scrollTop = 0;
}
