// The treemap and the graph of Apache ECharts, drawn on a canvas, and dagre's layout of directed graphs: nothing else.
import { GraphChart, TreemapChart } from "echarts/charts";
import { AriaComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { Graph, layout } from "@dagrejs/dagre";

use([TreemapChart, GraphChart, AriaComponent, CanvasRenderer]);

export { Graph, init, layout };
