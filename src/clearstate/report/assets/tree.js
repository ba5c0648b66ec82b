// The page's data as columns, and as a tree: modules in modules, fields in them, pieces at the ends.

const data = JSON.parse(document.getElementById("data").textContent);
const { modules, equal, pieces, roles, sides, words } = data;
const two = sides.length === 2;
const count = pieces.home.length;

const bytesOf = [pieces.before.map(Number), two ? pieces.after.map(Number) : null];

function pathOf(i) {
  return (pieces.home[i] < 0 ? "" : modules.path[pieces.home[i]]) + pieces.rest[i] || `<${words[pieces.type[i]]}>`;
}

function sizeText(size) {
  let unit = 0;
  while (size >= 999.5 && unit < 4) {
    size /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || size >= 99.5 ? 0 : 1;
  return `${size.toFixed(digits)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

const percent = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(1)}%`;

// A class as people call it: its name without the package that nearly all of them are in.
const shortType = (name) => name.replace(/^(torch\.nn\.modules\.\w+|nn)\./, "");

// The steps of a path: `a.b[1]['c.d']` is a, b, [1], ['c.d']. However many there are, the last has all that is left.
const DEEPEST = 60;
const STEP = /\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\]]*)\]?|[^.[]+/g;

function steps(text) {
  const found = [];
  for (const match of text.matchAll(STEP)) {
    if (found.length === DEEPEST) {
      found.push(text.slice(match.index));
      break;
    }
    found.push(match[0]);
  }
  return found;
}

// A text whose order among others is that of a name, its numbers by their worth.
const natural = (name) =>
  name.replace(/\d+/g, (number) => {
    const digits = number.replace(/^0+/, "");
    return String.fromCharCode(48 + Math.min(digits.length, 59952)) + digits;
  });

class Node {
  constructor(label, above) {
    this.label = label;
    this.above = above;
    this.type = "";
    this.module = -1;
    this.piece = -1;
    this.role = -1;
    this.children = null;
    this.bytes = [0, 0];
    this.row = ""; // of a row of equal modules: its path
  }

  // The node and all around it, from the outermost.
  get line() {
    const nodes = [];
    for (let at = this; at; at = at.above) nodes.unshift(at);
    return nodes;
  }

  // Bytes of each role below.
  byRole(side) {
    const totals = roles.map(() => 0);
    const stack = [this];
    while (stack.length) {
      const node = stack.pop();
      if (node.children) for (const child of node.children) stack.push(child);
      else if (node.piece >= 0) totals[node.role] += node.bytes[side];
    }
    return totals;
  }

  holds(node) {
    for (let at = node; at; at = at.above) if (at === this) return true;
    return false;
  }
}

function moduleLabel(path, around) {
  const name = path.slice(around.length).replace(/^\./, "");
  const number = /^modules\[(\d+)\]$/.exec(name);
  return number ? `(${number[1]})` : name;
}

const root = new Node("", null);
const moduleNodes = modules.path.map((path, i) => (path === "" ? root : new Node("", null)));
const pieceNodes = new Array(count);

function grow() {
  const inside = new Map(); // of a node that is no piece: its children by step
  const add = (node, above) => {
    node.above = above;
    (above.children ||= []).push(node);
  };
  modules.path.forEach((path, i) => {
    const node = moduleNodes[i];
    node.type = modules.type[i];
    node.module = i;
    if (node === root) return;
    const around = modules.above[i];
    node.label = moduleLabel(path, around < 0 ? "" : modules.path[around]);
    add(node, around < 0 ? root : moduleNodes[around]);
  });
  for (let i = 0; i < count; i += 1) {
    let at = pieces.home[i] < 0 ? root : moduleNodes[pieces.home[i]];
    const names = steps(pieces.rest[i]);
    const last = names.pop() ?? words[pieces.type[i]];
    for (const name of names) {
      let known = inside.get(at);
      if (!known) inside.set(at, (known = new Map()));
      let next = known.get(name);
      if (!next) {
        known.set(name, (next = new Node(name, at)));
        add(next, at);
      }
      at = next;
    }
    const node = new Node(last, at);
    node.piece = i;
    node.role = pieces.role[i];
    node.bytes = [bytesOf[0][i], two ? bytesOf[1][i] : 0];
    pieceNodes[i] = node;
    add(node, at);
  }
}

// Fields that hold one thing only become one with it (`weight`, `<args>`, `[0]`), and what is below is summed up.
function settle() {
  const order = [root];
  for (const node of order) for (const child of node.children || []) order.push(child);
  for (const node of order.reverse()) {
    if (!node.children) continue;
    node.children = node.children.map((child) => {
      const only = child.module < 0 && child.children && child.children.length === 1 ? child.children[0] : null;
      if (!only || only.module >= 0) return child;
      only.label = child.label + (only.label.startsWith("[") ? "" : ".") + only.label;
      only.above = node;
      return only;
    });
    for (const child of node.children) {
      node.bytes[0] += child.bytes[0];
      node.bytes[1] += child.bytes[1];
    }
  }
}

// Equal modules in a row are in a node of their own, which says how many they are.
function fold() {
  const rowOf = new Map();
  const folded = new Set();
  equal.modules.forEach((numbers, i) => {
    const members = numbers.map((number) => moduleNodes[number]);
    const { above } = members[0];
    const row = new Node(equal.text[i], above);
    row.row = equal.path[i];
    row.children = members;
    for (const member of members) {
      rowOf.set(member, row);
      row.bytes[0] += member.bytes[0];
      row.bytes[1] += member.bytes[1];
    }
    folded.add(above);
  });
  for (const node of folded) {
    const inner = new Set(node.children.map((child) => rowOf.get(child) || child));
    node.children = [...inner];
  }
  for (const [member, row] of rowOf) member.above = row;
}

grow();
settle();
fold();
