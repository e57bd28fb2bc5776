// The layout of the tree as an icicle: columns are levels, heights are numbers of documents as far as names stay readable.
// This file draws nothing.

const MOST_LEVELS = 3; // below the focus
const ROW = 26; // pixels: the lowest row
const NEST = 80; // pixels: the lowest branch whose children scroll beside it
const MOST_NESTED = 1000; // rows that scroll in branches
const MOST_HEIGHT = [0, 0, 4000, 2000]; // pixels: the highest tree that shows two and three levels

// Pixels that a node needs so that each row below it, down to a level, has a name.
function neededHeight(model, node, levels) {
  if (!levels || !model.children[node].length) return ROW;
  return Math.max(ROW, model.children[node].reduce((sum, child) => sum + neededHeight(model, child, levels - 1), 0));
}

// How many levels to show: deeper ones only if the tree does not become much higher than the screen.
function shownLevels(model, focus, high, most = MOST_LEVELS) {
  for (let levels = most; levels > 1; levels--) {
    if (neededHeight(model, focus, levels) <= Math.max(high, MOST_HEIGHT[levels])) return levels;
  }
  return 1;
}

// A few branches with many children: all branches are visible, and the children of each scroll beside it.
function nestedIcicle(model, focus, high) {
  const branches = model.children[focus];
  const below = branches.reduce((sum, node) => sum + model.children[node].length, 0);
  if (branches.length * NEST > high || below > MOST_NESTED || neededHeight(model, focus, 2) < 1.5 * high) return null;
  const rows = [{ node: focus, level: 0, top: 0, height: high, hidden: false }];
  let at = 0;
  widened(partsOf(model, focus, branches).map((part) => part * high), branches.map(() => NEST), high).forEach((height, i) => {
    const children = model.children[branches[i]];
    rows.push({ node: branches[i], level: 1, top: at, height, hidden: false, scrolls: children.length * ROW > height });
    const least = children.map(() => ROW);
    let inner = 0;
    widened(partsOf(model, branches[i], children).map((part) => part * height), least, height).forEach((one, j) => {
      rows.push({ node: children[j], level: 2, top: inner, height: one, hidden: model.children[children[j]].length > 0, nest: { top: at, height, branch: branches[i] } });
      inner += one;
    });
    at += height;
  });
  return { rows, levels: 2, high };
}

// The rows of the tree: node, level, top and height in pixels, and the index of the parent's row.
function icicle(model, focus, high, most = MOST_LEVELS) {
  const nested = nestedIcicle(model, focus, high);
  if (nested) return nested;
  const levels = shownLevels(model, focus, high, most);
  const rows = [];
  const add = (node, level, top, height) => {
    const children = level < levels ? model.children[node] : [];
    rows.push({ node, level, top, height, hidden: level === levels && model.children[node].length > 0 });
    if (!children.length) return;
    const least = children.map((child) => neededHeight(model, child, levels - level - 1));
    const parts = partsOf(model, node, children).map((part) => part * height);
    const wanted = parts.reduce((a, b) => a + b, 0);
    let at = top;
    widened(parts, least, Math.min(height, wanted)).forEach((one, i) => {
      add(children[i], level + 1, at, one);
      at += one;
    });
  };
  add(focus, 0, 0, Math.max(high, neededHeight(model, focus, levels)));
  return { rows, levels, high: rows[0].height };
}

// Shares of the children of a node; their sum is at most 1. Documents with several labels count once for each.
function partsOf(model, node, children) {
  const total = children.reduce((sum, child) => sum + model.size[child], 0);
  const whole = Math.max(model.size[node], total);
  return children.map((child) => (whole > 0 ? model.size[child] / whole : 1 / children.length));
}

// Enlarge parts below their least size and shrink the others; the sum is `wanted`, or that of the least sizes if that is
// larger.
function widened(parts, least, wanted) {
  const total = Math.max(wanted, least.reduce((a, b) => a + b, 0));
  let wide = parts.map(() => false);
  for (;;) {
    const given = parts.reduce((sum, part, i) => sum + (wide[i] ? 0 : part), 0);
    const room = total - least.reduce((sum, one, i) => sum + (wide[i] ? one : 0), 0);
    const scale = given > 0 ? room / given : 0;
    const next = parts.map((part, i) => wide[i] || part * scale < least[i]);
    if (next.every(Boolean)) return least.map((one) => one + (total - least.reduce((a, b) => a + b, 0)) / least.length);
    if (next.every((one, i) => one === wide[i])) return parts.map((part, i) => (wide[i] ? least[i] : part * scale));
    wide = next;
  }
}
