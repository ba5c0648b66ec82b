// The graph of an nngraph net: nodes in the order values flow, laid out by dagre, drawn by the chart library.

const graphBox = document.getElementById("graph");
const stepSaid = document.getElementById("step");
const NODE = 26; // pixels, the height of a node

const HIGHEST = 680; // pixels of the whole drawing

let flow = null; // the graph drawn, with its layout
let flowChart = null;
let zoom = 1;
let centre = null;
let nodeCursor = 0;

function nodeSize(graph, i) {
  const home = graph.home[i];
  return home < 0 ? 0 : moduleNodes[home].bytes[0];
}

function nodeLabel(graph, i) {
  const home = graph.home[i];
  const label = shortType(graph.label[i]);
  return home < 0 || moduleNodes[home] === root ? label : `${moduleNodes[home].label} ${label}`;
}

const measure = document.createElement("canvas").getContext("2d");

function layOut(graph) {
  const net = new charts.Graph();
  net.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 24, marginx: 12, marginy: 12 });
  net.setDefaultEdgeLabel(() => ({}));
  measure.font = `12px ${palette.font}`;
  graph.label.forEach((_, i) => {
    const text = nodeLabel(graph, i).slice(0, 40);
    net.setNode(String(i), { width: Math.max(44, measure.measureText(text).width + 24), height: NODE, text });
  });
  graph.reads.forEach((parents, i) => new Set(parents).forEach((parent) => net.setEdge(String(parent), String(i))));
  charts.layout(net);
  const readers = graph.label.map(() => []);
  graph.reads.forEach((parents, i) => parents.forEach((parent) => readers[parent].push(i)));
  return { graph, net, readers, wide: net.graph().width, high: net.graph().height };
}

// The heaviest role of a node's module.
function nodeRole(graph, i) {
  const home = graph.home[i];
  if (home < 0 || !moduleNodes[home].bytes[0]) return -1;
  const totals = moduleNodes[home].byRole(0);
  return totals.indexOf(Math.max(...totals));
}

function graphOption() {
  const { graph, net } = flow;
  const nodes = graph.label.map((_, i) => {
    const { x, y, width, text } = net.node(String(i));
    const role = nodeRole(graph, i);
    const fill = role < 0 ? palette.level : palette.roles[role];
    return {
      name: String(i),
      x,
      y,
      symbol: "roundRect",
      symbolSize: [width * zoom, NODE * zoom],
      itemStyle: { color: fill, borderColor: palette.line, borderWidth: 1 },
      label: { color: role < 0 ? palette.text : palette.inks[role], text },
    };
  });
  // Points that nobody sees: two corners, so that the chart's scale is the layout's, and the bends of the edges, which
  // begin and end at the border of a node and go around the others.
  const point = (name, { x, y }) => {
    nodes.push({ name, x, y, symbolSize: 0, bend: true, label: { show: false }, itemStyle: { opacity: 0 } });
    return name;
  };
  point("first corner", { x: 0, y: 0 });
  point("last corner", { x: flow.wide, y: flow.high });
  const links = [];
  for (const edge of net.edges()) {
    const bends = net.edge(edge).points.map((at, k) => point(`${edge.v} ${edge.w} ${k}`, at));
    for (let k = 1; k < bends.length; k += 1) {
      links.push({ source: bends[k - 1], target: bends[k], symbol: ["none", k === bends.length - 1 ? "arrow" : "none"] });
    }
  }
  return {
    animation: false,
    series: [
      {
        type: "graph",
        layout: "none",
        coordinateSystem: null,
        data: nodes,
        links,
        left: 0,
        top: 0,
        right: 0,
        bottom: 0,
        preserveAspect: true,
        roam: "move",
        zoom: zoom / Math.min(graphBox.clientWidth / flow.wide, graphBox.clientHeight / flow.high),
        center: centre,
        nodeScaleRatio: 0,
        edgeSymbolSize: 7 * Math.min(1, zoom),
        lineStyle: { color: palette.faint, width: 1.2, opacity: 0.9 },
        label: {
          show: zoom > 0.45,
          fontFamily: palette.font,
          fontSize: 12 * Math.min(1.4, zoom),
          formatter: (event) => (event.data.bend ? "" : event.data.label.text),
        },
        emphasis: { itemStyle: { borderColor: palette.focus, borderWidth: 3 }, lineStyle: { width: 1.2 } },
      },
    ],
  };
}

function drawGraph() {
  if (!flow) return;
  graphBox.style.height = `${Math.max(160, Math.min(HIGHEST, Math.ceil(flow.high * Math.min(zoom, 1))))}px`;
  if (!flowChart) {
    flowChart = charts.init(graphBox, null, { renderer: "canvas" });
    flowChart.on("click", (event) => event.data && !event.data.bend && event.dataType === "node" && openStep(Number(event.data.name)));
    flowChart.on("mouseover", (event) => event.dataType === "node" && !event.data.bend && sayStep(Number(event.data.name)));
    flowChart.on("graphroam", () => (centre = flowChart.getOption().series[0].center));
  } else {
    flowChart.resize();
  }
  flowChart.setOption(graphOption(), { replaceMerge: ["series"] });
  graphBox.dataset.nodes = flow.graph.label.length;
}

function sayStep(i) {
  const { graph, readers } = flow;
  const names = (list) => list.map((n) => nodeLabel(graph, n)).join(", ");
  const home = graph.home[i];
  const parts = [nodeLabel(graph, i)];
  if (home >= 0) parts.push(`${modules.type[home]}, ${sizeText(nodeSize(graph, i))}`);
  if (graph.reads[i].length) parts.push(`reads ${names(graph.reads[i])}`);
  if (readers[i].length) parts.push(`read by ${names(readers[i])}`);
  stepSaid.textContent = parts.join(" · ");
}

function openStep(i) {
  nodeCursor = i;
  sayStep(i);
  if (flow.graph.home[i] >= 0) go(moduleNodes[flow.graph.home[i]]);
}

function pointStep(i) {
  if (i === undefined) return;
  nodeCursor = i;
  const { x, y } = flow.net.node(String(i));
  const inSight = flow.wide * zoom <= graphBox.clientWidth && flow.high * zoom <= graphBox.clientHeight;
  if (!inSight) {
    centre = [x, y];
    drawGraph();
  }
  flowChart.dispatchAction({ type: "downplay", seriesIndex: 0 });
  flowChart.dispatchAction({ type: "highlight", seriesIndex: 0, dataIndex: i });
  sayStep(i);
}

function zoomGraph(factor) {
  zoom = Math.max(0.05, Math.min(2.5, zoom * factor));
  drawGraph();
}

function wholeGraph(readable) {
  const fits = Math.min(1, graphBox.clientWidth / flow.wide, HIGHEST / flow.high);
  zoom = readable ? Math.max(fits, 0.75) : fits;
  centre = [flow.wide / 2, Math.min(HIGHEST / zoom, flow.high) / 2];
  drawGraph();
}

function startGraphs() {
  const { graphs } = data;
  if (!graphs.length) return;
  document.getElementById("flow").hidden = false;
  const which = document.getElementById("which");
  which.hidden = graphs.length < 2;
  graphs.forEach((graph, i) => which.append(new Option(`${graph.title}, ${graph.label.length} nodes`, i)));
  const choose = () => {
    flow = layOut(graphs[which.value]);
    nodeCursor = 0;
    wholeGraph(true);
  };
  which.addEventListener("change", choose);
  document.getElementById("closer").addEventListener("click", () => zoomGraph(1.3));
  document.getElementById("farther").addEventListener("click", () => zoomGraph(1 / 1.3));
  document.getElementById("whole").addEventListener("click", () => wholeGraph(false));
  graphBox.addEventListener("focus", () => pointStep(nodeCursor));
  graphBox.addEventListener("blur", () => flowChart.dispatchAction({ type: "downplay" }));
  graphBox.addEventListener("keydown", (event) => {
    const { graph, readers } = flow;
    const beside = (way) => {
      const parent = graph.reads[nodeCursor][0];
      const row = parent === undefined ? [nodeCursor] : readers[parent];
      return row[(row.indexOf(nodeCursor) + row.length + way) % row.length];
    };
    const moves = {
      ArrowDown: () => pointStep(readers[nodeCursor][0]),
      ArrowUp: () => pointStep(graph.reads[nodeCursor][0]),
      ArrowRight: () => pointStep(beside(1)),
      ArrowLeft: () => pointStep(beside(-1)),
      Home: () => pointStep(0),
      End: () => pointStep(graph.label.length - 1),
      Enter: () => openStep(nodeCursor),
      "+": () => zoomGraph(1.3),
      "-": () => zoomGraph(1 / 1.3),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
  });
  choose();
}
