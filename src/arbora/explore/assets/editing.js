// Edit topics: rename, merge, split; undo, save, export. A list of edits is replayed from the data of the page, or by the
// server from its model, so that undo takes back the last one.

const editors = new Map(); // of each model: its data without edits, and the edits
const FILE_FORMAT = { format: "arbora-edits", version: 1 };

function canEdit(model) {
  return model.topic !== undefined && model.about.kind.startsWith("topic");
}

function editorOf(number) {
  if (!editors.has(number)) {
    const edits = page.limits.edits?.[number] ?? []; // saved since the start of the server, which replays all from there
    editors.set(number, { raw: page.models[number], edits, saved: edits, busy: false });
  }
  return editors.get(number);
}

function hasEditServer() {
  return Boolean(page.live && page.limits.edit);
}

// Replace a model by its edited data and draw it; the topic that was edited stays selected.
function showEdited(number, raw, topic) {
  const old = models[number];
  models[number] = new Model(raw);
  const node = topic === null ? -1 : (models[number].topic ?? []).indexOf(topic);
  state.node = node >= 0 ? node : models[number].root;
  drawn = {};
  if (chosenDocs.model === old) chosenDocs.model = models[number];
  const next = address(state);
  if (next === location.hash) readAddress();
  else location.hash = next;
}

async function applyEdits(number, edits, topic, save = false) {
  const editor = editorOf(number);
  editor.busy = true;
  try {
    let raw;
    if (hasEditServer()) {
      const answer = await post("api/edits", JSON.stringify({ model: number, edits, save, after: editor.saved }), "application/json");
      raw = (await answer.json()).data;
    } else raw = editedRaw(editor.raw, edits);
    editor.edits = edits;
    if (save) editor.saved = edits;
    editor.wrong = "";
    showEdited(number, raw, topic);
    byId("said").textContent = save ? "Edits saved" : `${count(edits.length, "edit")}`;
  } catch (error) {
    editor.wrong = error.message;
    drawDetails(byId("details"), models[number], state.node);
  }
  editor.busy = false;
  drawEditBar();
}

function addEdit(edit, topic) {
  const editor = editorOf(state.model);
  if (!editor.busy) applyEdits(state.model, [...editor.edits, edit], topic);
}

function describeEdit(edit) {
  if (edit.edit === "rename") return `rename topic ${edit.topic} to “${edit.title}”`;
  return edit.edit === "merge" ? `merge topics ${edit.topics.join(" and ")}` : `split topic ${edit.topic} into ${edit.n_topics}`;
}

// The bar under the head: what was edited, and what can be done with it.
function drawEditBar() {
  const bar = byId("edits");
  const editor = editors.get(state.model);
  bar.hidden = !editor || (!editor.edits.length && !editor.saved.length);
  if (bar.hidden) return;
  const { edits } = editor;
  const saved = JSON.stringify(edits) === JSON.stringify(editor.saved);
  const number = state.model;
  const button = (id, text, onclick, more = {}) => make("button", { type: "button", class: "small", id, onclick, ...more }, text);
  bar.replaceChildren(make("span", {}, make("b", {}, count(edits.length, "edit")), edits.length ? `: last, ${describeEdit(edits.at(-1))}` : ": all undone",
    saved && edits.length ? " · saved" : ""),
  button("undo", "Undo", () => applyEdits(number, edits.slice(0, -1), null), { disabled: !edits.length }),
  hasEditServer() ? button("save-edits", "Save to the folder", () => applyEdits(number, edits, models[number].topic?.[state.node] ?? null, true), { disabled: saved }) : "",
  button("export-edits", "Export edits", () => saveText(`${JSON.stringify({ ...FILE_FORMAT, edits }, null, 1)}\n`, "edits.json", "application/json"), { disabled: !edits.length }),
  hasEditServer() ? "" : make("span", { class: "hint" }, "Apply the file with: arbora explore FOLDER --edits edits.json"));
}

// The form in the panel of a topic.
function editSection(model, node) {
  const topic = model.topic?.[node] ?? null;
  if (topic === null || !canEdit(model)) return "";
  const title = make("input", { type: "text", id: "new-title", value: model.title[node], maxlength: "200", "aria-label": "New title" });
  const others = [...model.name.keys()].filter((one) => one !== node && (model.topic[one] ?? null) !== null)
    .sort((a, b) => model.title[a].localeCompare(model.title[b]));
  const other = make("select", { id: "merge-with", "aria-label": "Topic to merge with" }, others.map((one) => make("option", { value: model.topic[one] }, cut(model.title[one], 40))));
  const parts = make("input", { type: "number", id: "parts", min: "2", max: "50", value: "2", "aria-label": "Number of new topics" });
  const timed = Boolean(model.time);
  const button = (id, text, onclick, more = {}) => make("button", { type: "button", class: "small", id, onclick, ...more }, text);
  const rename = () => title.value !== model.title[node] && addEdit({ edit: "rename", topic, title: title.value.trim() }, topic);
  title.addEventListener("keydown", (event) => event.key === "Enter" && rename());
  const merge = () => addEdit({ edit: "merge", topics: [topic, Number(other.value)].sort((a, b) => a - b) }, Math.min(topic, Number(other.value)));
  const canSplit = hasEditServer() && !timed;
  const wrong = editorOf(state.model).wrong;
  return make("details", { class: "edit", open: Boolean(wrong) || editSection.open, ontoggle: (event) => (editSection.open = event.target.open) }, make("summary", {}, "Edit this topic"),
    make("div", { class: "row" }, title, button("rename", "Rename", rename)),
    others.length ? make("div", { class: "row" }, make("label", { class: "with" }, "Merge with ", other), button("merge", "Merge", merge)) : "",
    make("div", { class: "row" }, make("label", {}, "Split into ", parts), button("split", "Split", () => addEdit({ edit: "split", topic, n_topics: Number(parts.value) }, topic), { disabled: !canSplit })),
    canSplit ? "" : make("p", { class: "hint" }, timed ? "Topics over time cannot be split: fit again with more topics." : "A split needs the model: arbora explore FOLDER --serve."),
    wrong ? make("p", { class: "wrong", role: "alert" }, wrong) : "");
}
