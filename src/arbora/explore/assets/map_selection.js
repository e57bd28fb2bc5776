// Documents that the user has selected on the map: with a lasso, a box, or a whole topic; listed and saved.

const chosenDocs = { model: null, docs: new Set(), how: "" };

function selectedDocs(model) {
  return chosenDocs.model === model ? chosenDocs.docs : new Set();
}

function select(model, docs, how) {
  Object.assign(chosenDocs, { model, docs: new Set(docs), how });
  drawDetails(byId("details"), model, state.node);
  view.select?.();
  const text = docs.length ? `${count(docs.length, "document")} selected` : "No document selected";
  byId("said").textContent = text; // for screen readers
}

// The rows of a file of the selection.
function selectionRows(model) {
  return [...selectedDocs(model)].sort((a, b) => a - b).map((doc) => {
    const node = model.home(doc);
    const labels = listed(model.docs.label[doc]);
    return { id: model.docs.id[doc], text: model.docs.text[doc] || (model.docs.words?.[doc] ?? []).map(([word]) => word).join(" "),
      node: model.name[node] ?? "", title: model.title[node] ?? "", label: labels.join("; "), probability: first(model.docs.probability[doc]) ?? "",
      ...(model.docs.time && model.time ? { time: model.time.bins[model.docs.time[doc]]?.name ?? "" } : {}) };
  });
}

// CSV of rows. A spreadsheet must not take a text for a formula: such a cell begins with an apostrophe.
function asCsv(rows) {
  const cell = (value) => {
    const text = String(value ?? "");
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const names = Object.keys(rows[0] ?? {});
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function selectionSection(model) {
  const docs = [...selectedDocs(model)];
  if (!docs.length) return "";
  const counts = new Map();
  for (const doc of docs) counts.set(model.home(doc), (counts.get(model.home(doc)) ?? 0) + 1);
  const nodes = [...counts].filter(([node]) => node !== undefined).sort(([, a], [, b]) => b - a);
  const save = (kind) => () => {
    const rows = selectionRows(model);
    if (kind === "csv") saveText(asCsv(rows), "selection.csv", "text/csv");
    else saveText(JSON.stringify(rows, null, 1), "selection.json", "application/json");
  };
  const button = (id, text, onclick) => make("button", { type: "button", class: "small", id, onclick }, text);
  return make("section", { class: "selection", id: "selection" }, make("h3", {}, `${count(docs.length, "selected document")}`),
    make("p", { class: "meta" }, chosenDocs.how),
    make("div", { class: "tools" }, button("save-csv", "Save CSV", save("csv")), button("save-json", "Save JSON", save("json")),
      button("clear-selection", "Clear", () => select(model, [], ""))),
    make("ul", { class: "plain children" }, nodes.slice(0, 8).map(([node, n]) => make("li", {}, dot(model, node), nodeButton(model, node),
      bar(n / nodes[0][1], nodeColour(model, node)), make("span", { class: "number" }, whole.format(n))))),
    nodes.length > 8 ? make("p", { class: "hint" }, `and ${count(nodes.length - 8, "more topic")}`) : "",
    ...expandableList(docs, (doc) => documentCard(model, doc), "ul", "plain documents"));
}
