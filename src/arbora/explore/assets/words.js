// Words of a node, ordered by their relevance: between the commonest words of the node and those that only it has.

const N_WORDS = 12;
const DEFAULT_RELEVANCE = 0.6;
let relevance = null; // null: the order of the model

// Relevance (Sievert and Shirley 2014) of [word, share of the node, share of all documents].
function relevanceOf([, share, everywhere], setting) {
  return Math.log(share) - (1 - setting) * Math.log(Math.max(everywhere, 1e-9));
}

function relevantTerms(terms, setting) {
  return terms.filter(([, share]) => share > 0).map((term) => [relevanceOf(term, setting), term])
    .sort(([a], [b]) => b - a).slice(0, N_WORDS).map(([, term]) => term);
}

function wordBars(words, colour) {
  const largest = Math.max(...words.map(([, weight]) => weight), 1e-12);
  return make("ul", { class: "plain words" }, words.map(([word, weight]) =>
    make("li", {}, make("span", { class: "word" }, word), bar(weight / largest, colour),
      make("span", { class: "number" }, weight.toPrecision(2)))));
}

// Words with two shares: how many documents of the node have them, and a tick for how many of all documents do.
function shareBars(terms, colour) {
  const largest = Math.max(...terms.map(([, share]) => share), 1e-12);
  return make("ul", { class: "plain words" }, terms.map(([word, share, everywhere]) => {
    const one = bar(share / largest, colour);
    one.append(make("i", { class: "tick", style: { left: `${Math.min(100, (100 * everywhere) / largest)}%` } }));
    return make("li", { title: `in ${percent(share)} of these documents, ${percent(everywhere)} of all` }, make("span", { class: "word" }, word), one,
      make("span", { class: "number" }, percent(share, 0)));
  }));
}

// The typical words of a node, with the slider if the page has enough words for it.
function typicalWords(model, node) {
  const given = model.typical?.[node]?.length ? model.typical[node] : model.words[node];
  const terms = model.terms?.[node] ?? [];
  const colour = nodeColour(model, node);
  if (terms.length < 4) return wordBars(given, colour);
  const known = new Map(terms.map((term) => [term[0], term]));
  const list = make("div");
  const slider = make("input", { type: "range", id: "relevance", min: "0", max: "1", step: "0.05", value: relevance ?? DEFAULT_RELEVANCE, "aria-label": "Relevance: from exclusive words (0) to common words (1)" });
  const reset = make("button", { type: "button", class: "link", title: "The order of the model" }, "reset");
  const show = () => {
    const best = relevance === null ? given.map(([word, share]) => known.get(word) ?? [word, share, 0]) : relevantTerms(terms, relevance);
    list.replaceChildren(shareBars(best, colour));
    reset.hidden = relevance === null;
    slider.setAttribute("aria-valuetext", relevance === null ? "order of the model" : `relevance ${relevance}`);
  };
  slider.addEventListener("input", () => {
    relevance = Number(slider.value);
    show();
  });
  reset.addEventListener("click", () => {
    [relevance, slider.value] = [null, DEFAULT_RELEVANCE];
    show();
  });
  show();
  return make("div", {}, make("div", { class: "relevance" }, make("span", {}, "exclusive"), slider, make("span", {}, "common"), reset), list,
    make("p", { class: "hint" }, "Bar: share of these documents with the word. Tick: share of all documents."));
}

// Classifiers have deciding words, too: those with the largest weights.
function wordSections(model, node) {
  if (node === model.root && model.children[node].length && model.terms) return []; // all documents: no word is typical
  if (model.profile?.[node] || !(model.words[node].length || model.typical?.[node]?.length)) return [];
  const both = Boolean(model.typical?.[node]?.length);
  return [
    both && model.words[node].length && node !== model.root ? section("Deciding words", wordBars(model.words[node], nodeColour(model, node))) : "",
    section(both ? "Typical words" : "Words", typicalWords(model, node)),
  ];
}
