// The points of the map on a canvas: zoom, pan, hit test. It knows positions and looks, not models.
//
// Plotly's 2-D WebGL scatter compiles code at run time, which the content-security policy forbids; a canvas draws 50,000
// small pictures in a few frames and lets us select with a lasso.

const SCALE = 1e-4; // unit of the integer positions
const CELLS = 64; // of the index for the hit test, per side
const REACH = 9; // pixels from the pointer to a point
const MOST_ZOOM = 60;

class MapCanvas {
  // `x` and `y` are positions; `look(i)` gives {colour, shape, alpha} of a point; `onView` is called after each drawing.
  constructor(host, x, y, onView) {
    Object.assign(this, { host, x, y, onView, zoom: 1, centre: [0, 0], looks: [], marked: null, path: null, queued: false });
    this.canvas = make("canvas", { id: "map-canvas", "aria-hidden": "true" });
    host.append(this.canvas);
    this.#bounds();
    this.#index();
    this.pictures = new Map();
    this.resize();
  }

  #bounds() {
    const ends = (list) => list.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    const [[left, right], [bottom, top]] = [ends(this.x), ends(this.y)];
    this.home = { centre: [(left + right) / 2 || 0, (bottom + top) / 2 || 0], width: Math.max(right - left, 1e-6), height: Math.max(top - bottom, 1e-6), left, bottom };
    this.centre = [...this.home.centre];
  }

  #index() {
    this.cells = new Map();
    for (let i = 0; i < this.x.length; i++) {
      const key = this.#cell(this.x[i], 0) * CELLS + this.#cell(this.y[i], 1);
      if (!this.cells.has(key)) this.cells.set(key, []);
      this.cells.get(key).push(i);
    }
  }

  #cell(value, axis) {
    const [low, size] = axis ? [this.home.bottom, this.home.height] : [this.home.left, this.home.width];
    return Math.max(0, Math.min(CELLS - 1, Math.floor((CELLS * (value - low)) / size)));
  }

  resize() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.width = Math.max(50, this.host.clientWidth);
    this.height = Math.max(50, this.host.clientHeight);
    [this.canvas.width, this.canvas.height, this.ratio] = [this.width * ratio, this.height * ratio, ratio];
    // Room for labels at the edges.
    this.unit = Math.min((this.width - Math.min(120, 0.2 * this.width)) / this.home.width, (this.height - 70) / this.home.height);
    this.pictures.clear();
    this.draw();
  }

  get scale() {
    return this.unit * this.zoom;
  }

  screen(x, y) {
    return [this.width / 2 + (x - this.centre[0]) * this.scale, this.height / 2 - (y - this.centre[1]) * this.scale];
  }

  world(px, py) {
    return [this.centre[0] + (px - this.width / 2) / this.scale, this.centre[1] - (py - this.height / 2) / this.scale];
  }

  pan(dx, dy) {
    const limit = (value, axis) => {
      const half = (axis ? this.home.height : this.home.width) / 2;
      return Math.max(this.home.centre[axis] - half, Math.min(this.home.centre[axis] + half, value));
    };
    this.centre = [limit(this.centre[0] - dx / this.scale, 0), limit(this.centre[1] + dy / this.scale, 1)];
    this.draw();
  }

  zoomBy(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.world(px, py);
    this.zoom = Math.max(0.8, Math.min(MOST_ZOOM, this.zoom * factor));
    this.centre = [x - (px - this.width / 2) / this.scale, y + (py - this.height / 2) / this.scale];
    this.draw();
  }

  reset() {
    this.zoom = 1;
    this.centre = [...this.home.centre];
    this.draw();
  }

  radius() {
    const n = this.x.length;
    const base = n > 20000 ? 1.5 : n > 6000 ? 2 : n > 1500 ? 2.5 : 3.4;
    return base * Math.min(2.4, Math.max(0.85, this.zoom ** 0.35));
  }

  // A point as a small picture, made once for each look.
  #picture({ colour, shape, ring }, radius) {
    const key = `${colour} ${radius < 2.4 ? 0 : shape} ${ring}`;
    if (this.pictures.radius !== radius) {
      this.pictures.clear();
      this.pictures.radius = radius;
    }
    if (!this.pictures.has(key)) {
      const side = Math.ceil(2 * (radius + 2.5) * this.ratio);
      const picture = make("canvas", { width: side, height: side });
      const brush = picture.getContext("2d");
      brush.scale(this.ratio, this.ratio);
      brush.translate(side / this.ratio / 2, side / this.ratio / 2);
      drawShape(brush, radius < 2.4 ? 0 : shape, radius, colour, ring);
      this.pictures.set(key, picture);
    }
    return this.pictures.get(key);
  }

  draw() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.#paint();
      this.onView?.();
    });
  }

  #paint() {
    const brush = this.canvas.getContext("2d");
    brush.setTransform(1, 0, 0, 1, 0, 0);
    brush.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const radius = Math.round(this.radius() * 4) / 4;
    const [cx, cy] = this.centre;
    const [k, w, h, ratio] = [this.scale, this.width / 2, this.height / 2, this.ratio];
    for (const front of [false, true]) {
      for (let i = 0; i < this.x.length; i++) {
        const look = this.looks[i];
        if (!look || look.front !== front) continue;
        const [px, py] = [w + (this.x[i] - cx) * k, h - (this.y[i] - cy) * k];
        if (px < -9 || py < -9 || px > this.width + 9 || py > this.height + 9) continue;
        const picture = this.#picture(look, radius);
        brush.globalAlpha = look.alpha;
        brush.drawImage(picture, px * ratio - picture.width / 2, py * ratio - picture.height / 2);
      }
    }
    brush.globalAlpha = 1;
    if (this.path?.length > 1) this.#outline(brush);
  }

  #outline(brush) {
    brush.scale(this.ratio, this.ratio);
    brush.beginPath();
    this.path.forEach(([x, y], i) => (i ? brush.lineTo(x, y) : brush.moveTo(x, y)));
    brush.closePath();
    brush.fillStyle = token("lasso");
    brush.fill();
    brush.setLineDash([5, 4]);
    brush.lineWidth = 1.5;
    brush.strokeStyle = token("accent");
    brush.stroke();
    brush.setLineDash([]);
  }

  // The nearest point within reach of the pointer, or undefined.
  nearest(px, py) {
    const reach = REACH / this.scale;
    const [x, y] = this.world(px, py);
    let [best, found] = [reach ** 2, undefined];
    for (let a = this.#cell(x - reach, 0); a <= this.#cell(x + reach, 0); a++) {
      for (let b = this.#cell(y - reach, 1); b <= this.#cell(y + reach, 1); b++) {
        for (const i of this.cells.get(a * CELLS + b) ?? []) {
          const apart = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
          if (apart < best && this.looks[i]) [best, found] = [apart, i];
        }
      }
    }
    return found;
  }

  // The points inside a polygon of the screen.
  inside(polygon) {
    const corners = polygon.map(([px, py]) => this.world(px, py));
    const found = [];
    for (let i = 0; i < this.x.length; i++) if (this.looks[i] && isInside(this.x[i], this.y[i], corners)) found.push(i);
    return found;
  }
}

// Even-odd rule.
function isInside(x, y, corners) {
  let inside = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [[xi, yi], [xj, yj]] = [corners[i], corners[j]];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) inside = !inside;
  }
  return inside;
}

// The shapes of `SHAPES`, around the origin; the last three are outlines.
function drawShape(brush, shape, radius, colour, ring) {
  const kind = shape % 8;
  const base = kind < 5 ? kind : kind - 5;
  const r = base === 0 ? radius : radius * 1.08;
  brush.beginPath();
  if (base === 0) brush.arc(0, 0, r, 0, 2 * Math.PI);
  else if (base === 1) brush.rect(-0.88 * r, -0.88 * r, 1.76 * r, 1.76 * r);
  else if (base === 2) [[0, -1.15], [1.05, 0.8], [-1.05, 0.8]].forEach(([x, y]) => brush.lineTo(x * r, y * r));
  else if (base === 3) [[0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]].forEach(([x, y]) => brush.lineTo(x * r, y * r));
  else [[-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4], [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]]
    .forEach(([x, y]) => brush.lineTo(x * r, y * r));
  brush.closePath();
  [brush.fillStyle, brush.strokeStyle, brush.lineWidth] = [colour, colour, 1.2];
  if (kind < 5) brush.fill();
  else brush.stroke();
  if (!ring) return;
  [brush.strokeStyle, brush.lineWidth] = [ring, 1.4];
  brush.stroke();
}
