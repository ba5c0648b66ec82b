// The modules as a tree of lines: equal ones in a row are one line, which opens as any other does.

const OPEN = 24; // lines that are open from the start, at most

const treeCard = document.getElementById("tree");
const treeBox = document.getElementById("branches");
const treeTable = document.getElementById("lines");
const treeBody = document.querySelector("#lines tbody");

const unfolded = new Set(); // nodes whose modules are listed
let lines = []; // the nodes listed, with their levels and their places among their siblings
let lineAt = -1; // the line that the keyboard is on

const innerModules = new Map();

function modulesIn(node) {
  let inner = innerModules.get(node);
  if (!inner) innerModules.set(node, (inner = (node.children || []).filter((child) => child.module >= 0 || child.row)));
  return inner;
}

const outermost = () => (root.module >= 0 ? [root] : modulesIn(root));

function listLines() {
  lines = [];
  const stack = [];
  const push = (nodes, level) => {
    for (let i = nodes.length - 1; i >= 0; i -= 1) stack.push({ node: nodes[i], level, place: i + 1, of: nodes.length });
  };
  push(outermost(), 1);
  while (stack.length) {
    const line = stack.pop();
    lines.push(line);
    if (unfolded.has(line.node)) push(modulesIn(line.node), line.level + 1);
  }
  treeTable.setAttribute("aria-rowcount", lines.length + 1);
}

// From the outermost, what there is room for. Rows of equal modules wait for who asks.
function openFirst() {
  const waiting = [...outermost()];
  let total = waiting.length;
  for (const node of waiting) {
    const inner = modulesIn(node);
    if (node.row || !inner.length || total + inner.length > OPEN) continue;
    unfolded.add(node);
    total += inner.length;
    waiting.push(...inner);
  }
}

function drawLines(printing = false) {
  const tall = treeBox.clientHeight || 480;
  const pitch = Math.min(ROW, TALLEST / Math.max(lines.length, 1));
  const fit = Math.ceil(tall / ROW) + 2 * SPARE;
  const wanted = printing ? 0 : Math.max(0, Math.floor(treeBox.scrollTop / pitch) - SPARE);
  const from = Math.min(wanted, Math.max(0, lines.length - fit));
  const last = Math.min(lines.length, printing ? PRINTED : from + fit);
  const made = [];
  for (let at = from; at < last; at += 1) made.push(lineRow(at));
  if (!printing) {
    const height = pitch * lines.length;
    const top = Math.min(from * pitch, Math.max(0, height - (last - from) * ROW));
    made.unshift(spacer(top));
    made.push(spacer(Math.max(0, height - top - (last - from) * ROW)));
  }
  treeBody.replaceChildren(...made);
  if (lineAt >= from && lineAt < last) treeTable.setAttribute("aria-activedescendant", `line${lineAt}`);
  else treeTable.removeAttribute("aria-activedescendant");
}

function lineRow(at) {
  const { node, level, place, of } = lines[at];
  const row = document.createElement("tr");
  const opens = modulesIn(node).length > 0;
  row.id = `line${at}`;
  row.dataset.line = at;
  row.setAttribute("role", "row");
  row.setAttribute("aria-rowindex", at + 2);
  row.setAttribute("aria-level", level);
  row.setAttribute("aria-posinset", place);
  row.setAttribute("aria-setsize", of);
  row.setAttribute("aria-selected", String(at === lineAt));
  if (opens) row.setAttribute("aria-expanded", String(unfolded.has(node)));
  if (at === lineAt) row.className = "active";
  const type = node.row ? node.children[0].type : node.type;
  const name = node === root ? shortType(node.type) || "everything" : node.label;
  const texts = [name, type, ...sides.map((_, side) => sizeText(node.bytes[side])), percent(node.bytes[0], sides[0].size)];
  texts.forEach((full, i) => {
    const cell = document.createElement("td");
    const text = full.slice(0, LONGEST);
    cell.setAttribute("role", "gridcell");
    if (i > 1) cell.className = "n";
    if (i === 0) {
      const sign = document.createElement("span");
      sign.className = opens ? "sign" : "sign none";
      sign.style.marginLeft = `${Math.min(level - 1, 24) * 16}px`;
      sign.setAttribute("aria-hidden", "true");
      cell.append(sign);
    }
    cell.append(text);
    cell.title = text;
    row.append(cell);
  });
  return row;
}

function toggle(at, open) {
  const { node } = lines[at];
  if (!modulesIn(node).length || unfolded.has(node) === open) return;
  if (open) unfolded.add(node);
  else unfolded.delete(node);
  listLines();
  toLine(at);
}

function toLine(at) {
  lineAt = Math.max(0, Math.min(at, lines.length - 1));
  const pitch = Math.min(ROW, TALLEST / Math.max(lines.length, 1));
  const top = lineAt * pitch;
  const high = treeBox.clientHeight - ROW - treeTable.tHead.offsetHeight;
  if (top < treeBox.scrollTop) treeBox.scrollTop = top;
  else if (top > treeBox.scrollTop + high) treeBox.scrollTop = top - high;
  drawLines();
}

function lineAbove(at) {
  let up = at;
  while (up > 0 && lines[up].level >= lines[at].level) up -= 1;
  return up;
}

function startTree() {
  if (!modules.path.length) return;
  treeCard.hidden = false;
  document.getElementById("equal").hidden = !equal.path.length;
  const heads = ["Module", "Class", ...(two ? ["Before", "After"] : ["Bytes"]), "Share"];
  const widths = two ? ["44%", "28%", "10%", "10%", "8%"] : ["50%", "30%", "11%", "9%"];
  const head = document.createElement("tr");
  heads.forEach((text, i) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.style.width = widths[i];
    cell.className = i > 1 ? "n" : "";
    cell.textContent = text;
    head.append(cell);
  });
  treeTable.tHead.replaceChildren(head);
  openFirst();
  listLines();
  drawLines();
  let due = 0;
  treeBox.addEventListener("scroll", () => {
    due ||= requestAnimationFrame(() => {
      due = 0;
      drawLines();
    });
  });
  treeBody.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-line]");
    if (!row) return;
    const at = Number(row.dataset.line);
    const { node } = lines[at];
    if (event.target.classList.contains("sign")) toggle(at, !unfolded.has(node));
    else {
      toLine(at);
      go(node);
    }
  });
  treeTable.addEventListener("keydown", (event) => {
    const at = Math.max(lineAt, 0);
    const { node } = lines[at];
    const open = unfolded.has(node);
    const page = Math.max(1, Math.floor(treeBox.clientHeight / ROW) - 2);
    const moves = {
      ArrowDown: () => toLine(lineAt + 1),
      ArrowUp: () => toLine(lineAt - 1),
      PageDown: () => toLine(lineAt + page),
      PageUp: () => toLine(lineAt - page),
      Home: () => toLine(0),
      End: () => toLine(lines.length - 1),
      ArrowRight: () => (open ? toLine(at + 1) : toggle(at, true)),
      ArrowLeft: () => (open ? toggle(at, false) : toLine(lineAbove(at))),
      " ": () => toggle(at, !open),
      Enter: () => {
        toLine(at);
        go(node);
      },
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  });
}
