// File new documents on the server. Only pages of `arbora explore --serve` have this view.

async function post(address, body, type) {
  const answer = await fetch(address, { method: "POST", headers: { "content-type": type }, body, credentials: "same-origin" });
  if (answer.ok) return answer;
  let why = answer.statusText;
  try {
    why = (await answer.json()).error ?? why;
  } catch { /* the response is not JSON: use its status text */ }
  throw new Error(why);
}

function nodeByName(model, name, text = null) {
  const node = model.byName.get(String(name));
  return node === undefined ? make("span", {}, text ?? String(name)) : nodeButton(model, node);
}

function pathSteps(model, path) {
  return make("ol", { class: "plain steps" }, path.map(([name, probability], level) =>
    make("li", { style: { "--level": level } }, nodeByName(model, name), bar(probability),
      make("span", { class: "number" }, percent(probability)))));
}

// The deepest node that the model is sure of: the answer itself, a node above it, or none.
function sureOf(model, answer) {
  const path = answer.path ?? answer.labels?.[0]?.path;
  if (!path?.length || answer.labels?.length > 1) return "";
  const least = page.limits.sure ?? 0.8;
  const probability = new Map(path.map(([name, one]) => [String(name), one]));
  const deepest = path.filter(([, one]) => one >= least).at(-1)?.[0];
  const name = String(answer.backoff ?? deepest ?? path[0][0]);
  const [isLast, isTop] = [name === String(path.at(-1)[0]), name === String(path[0][0]) && path.length > 1];
  const sure = probability.get(name);
  return make("p", { class: isLast ? "sure" : "sure unsure", id: "sure" },
    make("b", {}, isTop ? "Not sure of any branch" : "Sure of: "), isTop ? "" : nodeByName(model, name),
    sure === undefined || isTop ? "" : ` ${percent(sure, 0)}`,
    make("span", { class: "meta" }, isLast ? "" : ` No deeper node is at least ${percent(least, 0)} probable.`));
}

// The text with its deciding words marked; stronger words have a thicker line.
function markedText(text, marks) {
  const points = [...text]; // the server counts characters, not UTF-16 units
  const largest = Math.max(...marks.map(([, , weight]) => weight), 1e-12);
  const parts = [];
  let at = 0;
  for (const [start, end, weight] of marks) {
    parts.push(points.slice(at, start).join(""),
      make("mark", { style: { "--strength": `${1 + Math.round((3 * weight) / largest)}px` }, title: `weight ${weight.toPrecision(2)}` }, points.slice(start, end).join("")));
    at = end;
  }
  return make("p", { class: "marked", id: "marked" }, ...parts, points.slice(at).join(""));
}

function answerCard(model, answer, text) {
  if (answer.note) return make("p", { class: "hint" }, `No answer: ${answer.note}.`);
  const paths = answer.labels ? answer.labels.map((one) => one.path) : [answer.path];
  const nearest = (answer.nearest ?? []).map((row) => [row[0], row.at(-1)]);
  return make("div", {}, sureOf(model, answer), make("div", { class: "answer" },
    section(paths.length === 1 ? "Prediction" : `Prediction: ${count(paths.length, "label")}`, ...paths.map((path) => pathSteps(model, path))),
    answer.novel ? make("p", { class: "meta" }, "Novel: it is unlike the training documents of the model.") : "",
    answer.words?.length ? section("Deciding words", wordBars(answer.words)) : "",
    nearest.length ? section("Most probable", pathSteps(model, nearest)) : ""),
    answer.marks?.length ? section("Deciding words in the text", markedText(text, answer.marks)) : "");
}

function filingView(stage, model) {
  const text = make("textarea", { id: "document", rows: "6", placeholder: "Paste a document here", "aria-label": "Document", maxlength: page.limits.document });
  const upload = make("input", { type: "file", id: "upload", "aria-label": "Text file", accept: ".txt,.md,text/*" });
  const batch = make("input", { type: "file", id: "batch", "aria-label": "JSONL file", accept: ".jsonl,.ndjson,.json" });
  const send = make("button", { type: "button", id: "send", class: "main" }, "File");
  const result = make("div", { id: "answer", "aria-live": ARIA_LIVE });
  const batchResult = make("div", { id: "batch-answer", "aria-live": ARIA_LIVE });
  const fail = (host, error) => host.replaceChildren(make("p", { class: "wrong", role: "alert" }, error.message));
  const run = async () => {
    result.replaceChildren(make("p", { class: "hint" }, "…"));
    try {
      const sent = text.value;
      const body = JSON.stringify({ model: state.model, text: sent, marks: true });
      const answer = await (await post("api/file", body, "application/json")).json();
      result.replaceChildren(answerCard(model, answer, sent));
      document.documentElement.dataset.answered = "yes";
    } catch (error) {
      fail(result, error);
    }
  };
  send.addEventListener("click", run);
  text.addEventListener("keydown", (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && run());
  upload.addEventListener("change", async () => {
    text.value = (await upload.files[0]?.text() ?? "").slice(0, page.limits.document);
    if (text.value) run();
  });
  batch.addEventListener("change", async () => {
    const file = batch.files[0];
    if (!file) return;
    batchResult.replaceChildren(make("p", { class: "hint" }, "…"));
    try {
      if (file.size > page.limits.batch) throw new Error(`the file is larger than ${whole.format(page.limits.batch)} bytes`);
      const answer = await post(`api/batch?model=${state.model}`, file, "application/x-ndjson");
      showBatch(batchResult, model, await answer.blob(), file.name);
    } catch (error) {
      fail(batchResult, error);
    }
  });
  stage.replaceChildren(make("div", { class: "column live" },
    make("section", { class: "panel" }, make("h3", {}, "One document"), text,
      make("div", { class: "tools" }, send, make("label", { class: "file" }, "or a text file ", upload), make("span", { class: "hint" }, "Ctrl + Enter")), result),
    make("section", { class: "panel" }, make("h3", {}, "Many documents"),
      make("p", { class: "hint" }, "A JSONL file with one document per line: {\"text\": \"...\"}. The answers have the same order."), batch, batchResult)));
  return { draw: async () => {}, focus: () => text.focus() };
}

async function showBatch(host, model, blob, name) {
  const lines = (await blob.text()).trim().split("\n").map((line) => JSON.parse(line));
  const wrong = lines.filter((line) => line.error).length;
  const save = make("button", { type: "button", class: "main", onclick: () => download(blob, name.replace(/\.\w+$/, "") + ".answers.jsonl") }, "Save answers");
  const row = (line, i) => make("tr", {}, make("td", { class: "number" }, String(i + 1)), make("td", {}, line.error ?? line.note ??
    (line.labels ? line.labels.map((one) => one.label).join(", ") : line.title ?? line.label ?? line.topic)),
    make("td", { class: "number" }, line.probability === undefined ? "" : percent(line.probability, 0)));
  host.replaceChildren(make("p", {}, `${count(lines.length, "document")}${wrong ? `; ${wrong} could not be read` : ""}. `), save,
    make("table", { class: "batch" }, make("tbody", {}, lines.slice(0, 50).map(row))),
    lines.length > 50 ? make("p", { class: "hint" }, "The first 50 are shown.") : "");
}
