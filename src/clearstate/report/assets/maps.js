// The treemaps: area is bytes, colour is role, nesting is the module path. One for each side, moving together.

const TILES = 700; // the most tiles of one map: what is smaller is drawn as a whole
const DEEP = 7; // levels that show their parts at once
const SMALLEST = 36; // square pixels of the smallest tile of its own
const NAMED = 1100; // square pixels from which a tile has its name on it
const SPECK = 20; // square pixels below which a role's part of a whole is left out
const OPENED = 7000; // square pixels from which a node shows its parts

const place = document.getElementById("maps");
const said = document.getElementById("said");
const crumbs = document.getElementById("crumbs");
const scaleButton = document.getElementById("scale");

let here = root; // what the maps show
let sameScale = true;
let only = null; // the role that stands out, if one does
let cursor = null; // { map, tile }

const maps = [];

// What is drawn inside a node, and how often it is there: of a row of equal modules, what is in one, as large as all.
function insideOf(node, times) {
  if (!node.row || node === here) return [node.children || [], times];
  return [node.children[0].children || [], times * node.children.length];
}

// The rows of equal modules in which a node is drawn for others, too; the innermost first.
function rowsAround(node) {
  const found = [];
  for (let at = node.above; at && at !== here; at = at.above) if (at.row) found.push(at);
  return found;
}

// The nodes that show their parts: the largest first, until there are enough tiles.
function opened(top, side, area) {
  const total = Math.max(top.bytes[side], 1);
  const open = new Set();
  const waiting = [[top, 0, 1]];
  let tiles = 0;
  while (waiting.length && tiles < TILES) {
    let best = 0;
    for (let i = 1; i < waiting.length; i += 1) {
      if (waiting[i][0].bytes[side] * waiting[i][2] > waiting[best][0].bytes[side] * waiting[best][2]) best = i;
    }
    const [node, level, around] = waiting.splice(best, 1)[0];
    open.add(node);
    const [children, times] = insideOf(node, around);
    for (const child of children) {
      const pixels = ((child.bytes[side] * times) / total) * area;
      if (pixels < SMALLEST) continue;
      tiles += 1;
      if (child.children && level < DEEP && pixels > OPENED) waiting.push([child, level + 1, times]);
    }
  }
  return open;
}

class Treemap {
  constructor(side) {
    this.side = side;
    this.frame = document.createElement("figure");
    this.caption = document.createElement("figcaption");
    this.box = document.createElement("div");
    this.box.className = "map";
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.canvas = document.createElement("div");
    this.canvas.className = "canvas";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "group");
    this.canvas.setAttribute("aria-roledescription", "treemap");
    this.box.append(this.canvas, this.tip);
    this.frame.append(this.caption, this.box);
    place.append(this.frame);
    this.tiles = [];
    this.chart = null;
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.tiles.length && this.point(cursor?.map === this ? cursor.tile : 0));
    this.canvas.addEventListener("blur", () => this.chart.dispatchAction({ type: "downplay" }));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.canvas.addEventListener("pointermove", (event) => this.moveTip(event));
  }

  // The tiles as the chart takes them; `this.tiles` has them in the chart's order, outer ones before their parts.
  cut() {
    const { side } = this;
    const total = Math.max(here.bytes[side], 1);
    const area = this.canvas.clientWidth * this.canvas.clientHeight;
    const open = opened(here, side, area);
    this.tiles = [{ node: here, above: -1, depth: 0 }];
    const tile = (node, above, role, value, text) => {
      this.tiles.push({ node, above, role, value, text, depth: this.tiles[above].depth + 1 });
      const number = this.tiles.length - 1;
      return { name: String(number), value, tile: number };
    };
    const leaf = (node, above, role, value, text) => {
      const made = tile(node, above, role, value, text);
      const lit = only === null || only === role;
      const fill = lit ? palette.roles[role] : palette.level;
      made.itemStyle = { color: fill, borderColor: fill, borderWidth: 2, decal: lit ? stripes(role) : undefined };
      made.label = { color: lit ? palette.inks[role] : palette.faint, show: (value / total) * area > NAMED };
      return made;
    };
    const parts = (nodes, above, text, times) => {
      const totals = roles.map(() => 0);
      for (const node of nodes) node.byRole(side).forEach((n, role) => (totals[role] += n * times));
      const about = nodes.length === 1 ? nodes[0] : this.tiles[above].node;
      const order = totals.map((n, role) => role).sort((a, b) => totals[b] - totals[a]);
      const seen = order.filter((role, i) => totals[role] && (i === 0 || (totals[role] / total) * area > SPECK));
      return seen.map((role) => leaf(about, above, role, totals[role], text));
    };
    const branch = (node, above, around) => {
      const small = [];
      const made = [];
      const [inside, times] = insideOf(node, around);
      const children = inside.filter((child) => child.bytes[side]);
      for (const child of children.sort((a, b) => b.bytes[side] - a.bytes[side])) {
        const value = child.bytes[side] * times;
        const pixels = (value / total) * area;
        if (child.piece >= 0 && pixels >= SMALLEST) made.push(leaf(child, above, child.role, value, child.label));
        else if (pixels < SMALLEST) small.push(child);
        else {
          const inner = tile(child, above, -1, value, nodeText(child));
          if (open.has(child)) inner.children = branch(child, inner.tile, times);
          else inner.children = parts([child], inner.tile, nodeText(child), times);
          const headed = open.has(child);
          inner.upperLabel = { show: headed };
          inner.itemStyle = {
            borderColor: this.tiles[inner.tile].depth % 2 ? palette.level : palette.level2,
            borderWidth: headed ? 2 : 1,
            gapWidth: 1,
          };
          made.push(inner);
        }
      }
      if (small.length) made.push(...parts(small, above, `${small.length.toLocaleString("en")} more`, times));
      return made;
    };
    return branch(here, 0, 1);
  }

  draw() {
    this.tip.hidden = true;
    if (!this.canvas.clientWidth) return;
    if (!this.chart) {
      this.chart = charts.init(this.canvas, null, { renderer: "canvas" });
      this.chart.on("click", (event) => this.click(event.data?.tile ?? 0));
      this.chart.on("mouseover", (event) => this.hover(event.data?.tile));
      this.chart.on("mouseout", () => (this.tip.hidden = true));
    } else {
      this.chart.resize();
    }
    const text = (event) => (this.tiles[event.data?.tile]?.text ?? "").slice(0, 80);
    this.chart.setOption(
      {
        animation: !still.matches,
        animationDurationUpdate: 350,
        series: [
          {
            type: "treemap",
            data: this.cut(),
            left: 0,
            top: 0,
            right: 0,
            bottom: 0,
            roam: false,
            nodeClick: false,
            breadcrumb: { show: false },
            visibleMin: 0,
            itemStyle: { borderWidth: 0, gapWidth: 2, borderColor: palette.card },
            label: {
              position: "insideTopLeft",
              distance: 6,
              fontFamily: palette.font,
              fontSize: 11,
              overflow: "truncate",
              formatter: text,
            },
            upperLabel: {
              height: 18,
              padding: [0, 5],
              color: palette.text,
              fontFamily: palette.font,
              fontSize: 11,
              overflow: "truncate",
              formatter: text,
            },
            emphasis: {
              itemStyle: { borderColor: palette.focus, borderWidth: 3 },
              label: { formatter: text },
              upperLabel: { color: palette.card, formatter: text },
            },
          },
        ],
      },
      { replaceMerge: ["series"] },
    );
    this.canvas.dataset.tiles = this.tiles.length;
    this.canvas.setAttribute("aria-label", `${two ? ["Before", "After"][this.side] + ": " : ""}${describe(here, this.side)}`);
  }

  click(number) {
    const { node } = this.tiles[number] || this.tiles[0];
    const row = rowsAround(node).pop();
    if (row) go(row); // one of many: these are to be seen first
    else if (node.children && node !== here) go(node);
    else if (node.above && node.above !== here && here.holds(node.above)) go(node.above);
    if (node.piece >= 0) showPiece(node.piece);
  }

  hover(number) {
    const tile = this.tiles[number];
    if (!tile) return;
    const [head, ...rest] = about(tile, this.side);
    const bold = document.createElement("b");
    bold.textContent = head;
    this.tip.replaceChildren(bold, ...rest.flatMap((line) => [document.createElement("br"), line]));
    this.tip.hidden = false;
    said.textContent = [head, ...rest].join(" · ");
  }

  moveTip(event) {
    const frame = this.box.getBoundingClientRect();
    const x = event.clientX - frame.left;
    const y = event.clientY - frame.top;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, frame.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 18 + this.tip.offsetHeight > frame.height ? y - this.tip.offsetHeight - 10 : y + 18}px`;
  }

  // Puts the keyboard's cursor on a tile and says what it is.
  point(number) {
    cursor = { map: this, tile: number };
    this.chart.dispatchAction({ type: "downplay", seriesIndex: 0 });
    this.chart.dispatchAction({ type: "highlight", seriesIndex: 0, dataIndex: number });
    said.textContent = about(this.tiles[number], this.side).join(" · ");
  }

  key(event) {
    const at = cursor?.map === this && this.tiles[cursor.tile] ? cursor.tile : 0;
    const { above } = this.tiles[at];
    const row = this.tiles.flatMap((tile, i) => (tile.above === above ? [i] : []));
    const inside = this.tiles.findIndex((tile) => tile.above === at);
    const moves = {
      ArrowRight: () => this.point(at === 0 ? Math.min(1, this.tiles.length - 1) : row[(row.indexOf(at) + 1) % row.length]),
      ArrowLeft: () => this.point(at === 0 ? 0 : row[(row.indexOf(at) + row.length - 1) % row.length]),
      ArrowDown: () => inside > 0 && this.point(inside),
      ArrowUp: () => above >= 0 && this.point(above),
      Home: () => go(root),
      Enter: () => this.click(at),
      " ": () => this.click(at),
      Escape: () => here.above && go(here.above),
      Backspace: () => here.above && go(here.above),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  }
}

const nodeText = (node) => `${node.label} ${shortType(node.type)}`.trim();

function nodePath(node) {
  if (node === root) return "the whole model";
  if (node.row) return node.row;
  if (node.piece >= 0) return pathOf(node.piece);
  if (node.module >= 0) return modules.path[node.module];
  return node.line.slice(1).map((part) => part.label).join(" › ");
}

// The path of a node that may be drawn for others, too: `layers.0-31.mlp`.
function drawnPath(node) {
  let path = nodePath(node);
  for (const row of rowsAround(node)) {
    const first = nodePath(row.children[0]);
    if (path.startsWith(first)) path = row.row + path.slice(first.length);
  }
  return path;
}

const describe = (node, side) => `${nodePath(node)}, ${sizeText(node.bytes[side])}`;

// What a tile is, in lines.
function about({ node, role, value, text }, side) {
  const size = value ?? node.bytes[side];
  const share = `${sizeText(size)}, ${percent(size, sides[side].size)}`;
  if (node.piece >= 0) {
    const i = node.piece;
    const what = [words[pieces.type[i]], words[pieces.geometry[i]]].filter(Boolean).join(", ");
    return [drawnPath(node), what, `${roles[role][0]}: ${words[pieces.evidence[i]]}`, share];
  }
  const path = drawnPath(node);
  const head = role === undefined || role < 0 ? [path] : [path, `all ${roles[role][0]}${/ more$/.test(text) ? ` of ${text}` : ""}`];
  const what = node.row ? node.label : node.type;
  return [...head, ...(what ? [what] : []), share];
}

function go(node) {
  here = node;
  cursor = null;
  drawMaps();
  said.textContent = describe(here, 0);
  if (maps.some((map) => map.canvas === document.activeElement)) maps.find((map) => map.canvas === document.activeElement).point(0);
  zoomed();
}

function drawCrumbs() {
  crumbs.replaceChildren(
    ...here.line.map((node) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = node === root ? shortType(node.type) || "everything" : nodeText(node);
      if (node === here) button.setAttribute("aria-current", "location");
      button.addEventListener("click", () => go(node));
      return button;
    }),
  );
}

function drawMaps() {
  drawCrumbs();
  const [old, now] = here.bytes;
  maps.forEach((map) => {
    const name = two ? `${["Before", "After"][map.side]}: ` : "";
    const size = here.bytes[map.side];
    map.caption.textContent = `${name}${sizeText(size)}${two && map.side && old > now ? `, ${percent(old - now, old)} less` : ""}`;
    const whole = Math.max(old, now, 1);
    const share = two && sameScale ? Math.sqrt(size / whole) : size ? 1 : 0;
    map.canvas.style.width = map.canvas.style.height = `${share * 100}%`;
    map.draw();
  });
}

function startMaps() {
  if (!root.bytes[0] && !root.bytes[1]) return;
  document.getElementById("where").hidden = false;
  sides.forEach((_, side) => maps.push(new Treemap(side)));
  place.classList.toggle("two", two);
  scaleButton.hidden = !two;
  scaleButton.addEventListener("click", () => {
    sameScale = !sameScale;
    scaleButton.setAttribute("aria-pressed", String(sameScale));
    drawMaps();
  });
  drawMaps();
}
