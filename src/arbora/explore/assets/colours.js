// One colour for each node, the same in all views. Branches of the top divide the circle of hues; nodes below a branch
// have shades of its colour. Colours are made in OKLCH, where equal steps look equal, and differ by theme in lightness.

const FEW_HUES = [262, 65, 25, 180, 310, 130, 350, 220]; // of at most eight branches: far apart, the largest first
const GOLDEN = 137.508; // degrees: any number of hues, successive ones far apart
const TIERS = [0, 1, -1]; // lightness of successive siblings
const SHAPES = ["●", "■", "▲", "◆", "✚", "○", "□", "△"];

function hexOf([r, g, b]) {
  return `#${[r, g, b].map((value) => Math.round(255 * Math.min(1, Math.max(0, value))).toString(16).padStart(2, "0")).join("")}`;
}

// OKLCH to sRGB (Björn Ottosson); the chroma is lowered until the colour can be shown.
function oklch(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const [l, m, s] = [lightness + 0.3963377774 * a + 0.2158037573 * b, lightness - 0.1055613458 * a - 0.0638541728 * b,
    lightness - 0.0894841775 * a - 1.291485548 * b].map((value) => value ** 3);
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s];
  if (chroma > 0.02 && linear.some((value) => value < -0.002 || value > 1.002)) return oklch(lightness, chroma - 0.01, hue);
  return hexOf(linear.map((value) => (value <= 0.0031308 ? 12.92 * value : 1.055 * Math.max(0, value) ** (1 / 2.4) - 0.055)));
}

// Hue, tier of lightness and rank among its siblings, for each node.
function paletteOf(model) {
  const palette = model.name.map(() => ({ hue: null, tier: 0, rank: 0 }));
  let top = model.root;
  while (model.children[top].length === 1 && model.children[model.children[top][0]].length) top = model.children[top][0];
  const branches = model.children[top];
  const width = Math.min(44, 300 / Math.max(1, branches.length));
  const open = branches.map((node, rank) => {
    const few = branches.length <= FEW_HUES.length;
    const hue = few ? FEW_HUES[rank] : (262 + rank * GOLDEN) % 360;
    return [node, hue, few ? 0 : TIERS[Math.floor(rank / FEW_HUES.length) % TIERS.length], rank, width];
  });
  for (let at = 0; at < open.length; at++) {
    const [node, hue, tier, rank, room] = open[at];
    palette[node] = { hue, tier, rank };
    const below = model.children[node];
    below.forEach((child, i) => {
      const shift = below.length > 1 ? i / (below.length - 1) - 0.5 : 0;
      open.push([child, hue + shift * room, TIERS[i % TIERS.length], i, room / 2]);
    });
  }
  return palette;
}

function nodeColour(model, node) {
  const theme = isDark() ? "dark" : "light";
  model.colours ??= { palette: paletteOf(model), light: new Map(), dark: new Map() };
  const made = model.colours[theme];
  if (!made.has(node)) {
    const { hue, tier } = model.colours.palette[node] ?? { hue: null, tier: 0 };
    const dark = theme === "dark";
    // Yellow and orange look brown when they are dark.
    const sunny = Math.max(0, Math.cos((((hue ?? 0) - 80) * Math.PI) / 180)) ** 3;
    const lightness = dark ? 0.74 + 0.08 * tier + 0.04 * sunny : 0.63 + 0.09 * tier + 0.1 * sunny;
    made.set(node, hue === null || hue === undefined ? (dark ? "#8f97a6" : "#7d8592") : oklch(lightness, dark ? 0.125 : 0.145, hue));
  }
  return made.get(node);
}

function rankOf(model, node) {
  nodeColour(model, node);
  return model.colours.palette[node]?.rank ?? 0;
}

function dot(model, node) {
  return make("span", { class: "glyph", style: { color: nodeColour(model, node) }, "aria-hidden": "true" }, SHAPES[rankOf(model, node) % SHAPES.length]);
}
