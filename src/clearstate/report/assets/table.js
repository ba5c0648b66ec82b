// The table of every piece: only the rows in sight exist, however many there are.

const ROW = 30; // pixels, as in the style sheet
const SPARE = 8; // rows made above and below those in sight
const PRINTED = 400; // rows on paper
const LONGEST = 2000; // characters of a cell
const TALLEST = 8e6; // pixels that every browser scrolls

const scroller = document.getElementById("scroller");
const table = document.getElementById("table");
const tableHead = document.querySelector("#table thead");
const tableBody = document.querySelector("#table tbody");
const search = document.getElementById("search");
const within = document.getElementById("within");
const counted = document.getElementById("count");
const more = document.getElementById("more");

const byNumber = (values) => (a, b) => values[b] - values[a];
const byWord = (text) => (a, b) => (text(a) < text(b) ? -1 : text(a) > text(b) ? 1 : 0);
const pathKeys = [];
const pathKey = (i) => (pathKeys[i] ??= natural(pathOf(i)));
const moduleType = (i) => (pieces.home[i] < 0 ? "" : modules.type[pieces.home[i]]);

const COLUMNS = [
  { name: "Path", text: pathOf, order: byWord(pathKey), wide: two ? "27%" : "34%" },
  { name: "Module", text: moduleType, order: byWord(moduleType), wide: two ? "17%" : "18%" },
  { name: "What", text: (i) => words[pieces.geometry[i]] || words[pieces.type[i]], wide: two ? "16%" : "17%" },
  { name: "Role", text: (i) => roles[pieces.role[i]][0], wide: "13%" },
  { name: "Evidence", text: (i) => words[pieces.evidence[i]], wide: "10%" },
  { name: two ? "Before" : "Bytes", number: true, text: sizeOn(0), order: byNumber(bytesOf[0]), wide: "9%" },
  ...(two ? [{ name: "After", number: true, text: sizeOn(1), order: byNumber(bytesOf[1]), wide: "9%" }] : []),
];
for (const column of COLUMNS) column.order ||= byWord(column.text);

function sizeOn(side) {
  const values = side ? pieces.after : pieces.before;
  return (i) => (values[i] === null ? "–" : sizeText(values[i]));
}

let sorted = { column: COLUMNS.findIndex((column) => column.number), back: false };
let shown = []; // numbers of the pieces listed, in order
let active = -1; // place in `shown`
let haystack = null;

function haystackOf(i) {
  haystack ||= pieces.home.map((_, n) =>
    [pathOf(n), moduleType(n), words[pieces.type[n]], words[pieces.geometry[n]], roles[pieces.role[n]][0], words[pieces.evidence[n]]]
      .join("\n")
      .toLowerCase(),
  );
  return haystack[i];
}

function list() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = active >= 0 ? shown[active] : -1;
  shown = [];
  for (let i = 0; i < count; i += 1) {
    if (only !== null && pieces.role[i] !== only) continue;
    if (within.checked && !here.holds(pieceNodes[i])) continue;
    if (wanted.length && !wanted.every((word) => haystackOf(i).includes(word))) continue;
    shown.push(i);
  }
  const { order } = COLUMNS[sorted.column];
  shown.sort(sorted.back ? (a, b) => order(b, a) : order);
  active = chosen < 0 ? -1 : shown.indexOf(chosen);
  const all = shown.length === count ? "" : ` of ${count.toLocaleString("en")}`;
  const bytes = shown.reduce((sum, i) => sum + bytesOf[0][i], 0);
  counted.textContent = `${shown.length.toLocaleString("en")}${all} pieces, ${sizeText(bytes)}`;
  table.setAttribute("aria-rowcount", shown.length + 1);
  rows();
}

function headings() {
  const row = document.createElement("tr");
  COLUMNS.forEach((column, i) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    const on = i === sorted.column;
    cell.scope = "col";
    cell.style.width = column.wide;
    cell.className = column.number ? "n" : "";
    cell.setAttribute("aria-sort", on ? (sorted.back === Boolean(column.number) ? "ascending" : "descending") : "none");
    button.type = "button";
    button.textContent = column.name;
    button.addEventListener("click", () => {
      sorted = { column: i, back: on && !sorted.back };
      headings();
      list();
      scroller.scrollTop = 0;
      tableHead.querySelectorAll("button")[i].focus();
    });
    cell.append(button);
    row.append(cell);
  });
  tableHead.replaceChildren(row);
}

// Where a row is, in pixels: rows lie closer than they are high where there are too many to scroll.
const step = () => Math.min(ROW, TALLEST / Math.max(shown.length, 1));

function rows(printing = false) {
  const first = printing ? 0 : Math.max(0, Math.floor(scroller.scrollTop / step()) - SPARE);
  const fit = Math.ceil((scroller.clientHeight || 600) / ROW) + 2 * SPARE;
  const last = Math.min(shown.length, printing ? PRINTED : first + fit);
  const start = Math.min(first, Math.max(0, shown.length - fit));
  const from = printing ? 0 : start;
  const made = [];
  for (let at = from; at < last; at += 1) made.push(rowOf(at));
  const height = step() * shown.length;
  const top = Math.min(from * step(), Math.max(0, height - (last - from) * ROW));
  if (!printing) {
    made.unshift(spacer(top));
    made.push(spacer(Math.max(0, height - top - (last - from) * ROW)));
  }
  tableBody.replaceChildren(...made);
  more.textContent = printing && shown.length > PRINTED ? `and ${(shown.length - PRINTED).toLocaleString("en")} more` : "";
  if (active >= from && active < last) table.setAttribute("aria-activedescendant", `row${active}`);
  else table.removeAttribute("aria-activedescendant");
}

function spacer(height) {
  const row = document.createElement("tr");
  row.setAttribute("aria-hidden", "true");
  row.className = "spacer";
  row.style.height = `${height}px`;
  return row;
}

function rowOf(at) {
  const i = shown[at];
  const row = document.createElement("tr");
  row.id = `row${at}`;
  row.dataset.at = at;
  row.setAttribute("aria-rowindex", at + 2);
  if (at === active) row.className = "active";
  for (const column of COLUMNS) {
    const cell = document.createElement("td");
    const text = column.text(i).slice(0, LONGEST);
    if (column.number) cell.className = "n";
    if (column.name === "Role") {
      const swatch = document.createElement("i");
      paintSwatch(swatch, pieces.role[i]);
      cell.append(swatch);
    }
    cell.append(text);
    cell.title = text;
    row.append(cell);
  }
  row.setAttribute("aria-selected", String(at === active));
  return row;
}

function activate(at) {
  active = Math.max(0, Math.min(at, shown.length - 1));
  const top = active * step();
  const high = scroller.clientHeight - ROW - tableHead.offsetHeight;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top > scroller.scrollTop + high) scroller.scrollTop = top - high;
  rows();
}

// A piece chosen in the map is the active row, where the table lists it.
function showPiece(i) {
  const at = shown.indexOf(i);
  if (at >= 0) activate(at);
}

// A piece chosen here is shown in the maps.
function showInMap(at) {
  if (at < 0 || at >= shown.length) return;
  activate(at);
  const node = pieceNodes[shown[at]];
  go(node.above || root);
  said.textContent = about({ node, role: node.role }, 0).join(" · ");
}

function startTable() {
  document.getElementById("pieces").hidden = false;
  scroller.style.maxHeight = `${(count + 2) * ROW}px`; // of a few pieces no tall box
  headings();
  let due = 0;
  scroller.addEventListener("scroll", () => {
    due ||= requestAnimationFrame(() => {
      due = 0;
      rows();
    });
  });
  tableBody.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-at]");
    if (row) showInMap(Number(row.dataset.at));
  });
  table.addEventListener("keydown", (event) => {
    if (event.target !== table) return;
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW) - 2);
    const moves = {
      ArrowDown: () => activate(active + 1),
      ArrowUp: () => activate(active - 1),
      PageDown: () => activate(active + page),
      PageUp: () => activate(active - page),
      Home: () => activate(0),
      End: () => activate(shown.length - 1),
      Enter: () => showInMap(active),
    };
    if (!moves[event.key] || !shown.length) return;
    event.preventDefault();
    moves[event.key]();
  });
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      scroller.scrollTop = 0;
      list();
    }, 80);
  });
  within.addEventListener("change", list);
  list();
}
