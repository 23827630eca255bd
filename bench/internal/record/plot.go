package record

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// A measure is the figure that a plot shows.
type measure struct {
	label string
	most  float64 // longer bars are cut; their label has the figure
	line  float64 // of the reference
	of    func(r *Record) *float64
	show  func(v float64) string
}

// measureOf returns the main figure of the records of a workload.
func measureOf(records []Record) measure {
	has := func(of func(r *Record) *float64) bool {
		return slices.ContainsFunc(records, func(r Record) bool { return of(&r) != nil })
	}
	bytes := func(r *Record) *float64 { return r.Bytes }
	latency := func(r *Record) *float64 { return r.P50 }
	switch {
	case has(bytes):
		return measure{"bytes for each connection or registration", 4000, 0, bytes, fixed(0)}
	case has(latency):
		return measure{"ns, median latency", 20_000, 0, latency, fixed(0)}
	}
	return measure{"CPU time for each operation, to the reference's", 3, 1,
		func(r *Record) *float64 { return r.CPURatio }, fixed(2)}
}

const (
	tileWidth = 12 * vg.Centimeter
	barHeight = 0.55 * vg.Centimeter
	across    = 2
)

// Plot writes the records of a workload as a PNG: bars, with a tile for each set of parameters.
func Plot(w io.Writer, records []Record) error {
	m := measureOf(records)
	var sets [][]Record
	for _, r := range records {
		if m.of(&r) == nil {
			continue
		}
		if n := len(sets); n > 0 && sets[n-1][0].Params == r.Params {
			sets[n-1] = append(sets[n-1], r)
		} else {
			sets = append(sets, []Record{r})
		}
	}
	if len(sets) == 0 {
		return fmt.Errorf("nothing was measured")
	}
	most := 0
	for _, s := range sets {
		most = max(most, len(s))
	}
	cols := min(across, len(sets))
	rows := (len(sets) + cols - 1) / cols
	plots := make([][]*plot.Plot, rows)
	for i := range plots {
		plots[i] = make([]*plot.Plot, cols)
	}
	for i, s := range sets {
		p, err := bars(s, m, most)
		if err != nil {
			return err
		}
		plots[i/cols][i%cols] = p
	}
	width := tileWidth * vg.Length(cols)
	height := (barHeight*vg.Length(most) + 2.5*vg.Centimeter) * vg.Length(rows)
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(96))}
	dc := draw.New(canvas)
	tiles := draw.Tiles{Rows: rows, Cols: cols, PadX: vg.Centimeter / 2, PadY: vg.Centimeter / 2,
		PadTop: vg.Centimeter / 4, PadBottom: vg.Centimeter / 4, PadLeft: vg.Centimeter / 4, PadRight: vg.Centimeter / 4}
	canvases := plot.Align(plots, tiles, dc)
	for i := range plots {
		for j, p := range plots[i] {
			if p != nil {
				p.Draw(canvases[i][j])
			}
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}

// bars returns the tile of one set of parameters, with the smallest value on top and room for a number of bars.
func bars(records []Record, m measure, room int) (*plot.Plot, error) {
	records = slices.SortedStableFunc(slices.Values(records), func(a, b Record) int {
		return -compare(*m.of(&a), *m.of(&b))
	})
	p := plot.New()
	p.Title.Text = records[0].Workload + " " + records[0].Params.String()
	p.Title.TextStyle.Font = font.From(plot.DefaultFont, 10)
	p.X.Label.Text = m.label
	p.X.Min, p.X.Max = 0, m.scale(records)
	if err := m.drawLine(p, len(records)); err != nil {
		return nil, err
	}
	var names []string
	labels := plotter.XYLabels{}
	for i := range records {
		r := &records[i]
		v := *m.of(r)
		names = append(names, r.Contender)
		bar, err := plotter.NewBarChart(plotter.Values{max(0, min(v, p.X.Max))}, barHeight*0.7)
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(i), 0
		bar.Color = colorOf(r)
		p.Add(bar)
		text := " " + m.show(v)
		if r.Spread != nil && m.line == 1 {
			text += " ±" + fixed(2)(*r.Spread/2)
		}
		labels.XYs = append(labels.XYs, plotter.XY{X: max(0, min(v, p.X.Max)), Y: float64(i)})
		labels.Labels = append(labels.Labels, text+" ")
	}
	values, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	for i := range values.TextStyle {
		values.TextStyle[i].Font = font.From(plot.DefaultFont, 8)
		values.TextStyle[i].YAlign = text.YCenter
		if labels.XYs[i].X > p.X.Max*0.8 { // within the bar
			values.TextStyle[i].XAlign = text.XRight
			if values.TextStyle[i].Color = color.Color(color.White); colorOf(&records[i]) == otherColor {
				values.TextStyle[i].Color = color.Black
			}
		}
	}
	p.Add(values)
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = float64(len(records)-room)-0.5, float64(len(records))-0.5
	p.Y.Tick.Label.Font = font.From(plot.DefaultFont, 9)
	p.X.Tick.Label.Font = font.From(plot.DefaultFont, 8)
	p.X.Label.TextStyle.Font = font.From(plot.DefaultFont, 8)
	return p, nil
}

// drawLine draws the line of the reference, behind the bars and their labels.
func (m measure) drawLine(p *plot.Plot, bars int) error {
	if m.line == 0 {
		return nil
	}
	line, err := plotter.NewLine(plotter.XYs{{X: m.line, Y: -0.5}, {X: m.line, Y: float64(bars) - 0.5}})
	if err != nil {
		return err
	}
	line.Dashes, line.Color = []vg.Length{2, 2}, color.Gray{0xc0}
	p.Add(line)
	return nil
}

// scale returns the end of the axis: that of the longest bar that is not cut.
func (m measure) scale(records []Record) float64 {
	longest := m.line
	for i := range records {
		longest = max(longest, *m.of(&records[i]))
	}
	longest = max(longest*1.3, math.SmallestNonzeroFloat32)
	return min(longest, m.most)
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

var otherColor = color.RGBA{0xbb, 0xbb, 0xbb, 0xff}

// colorOf returns different colors for socknotify, the reference and the others.
func colorOf(r *Record) color.Color {
	switch {
	case strings.HasPrefix(r.Contender, "socknotify/"):
		return color.RGBA{0x1f, 0x77, 0xb4, 0xff}
	case r.Contender == r.Reference:
		return color.RGBA{0x55, 0x55, 0x55, 0xff}
	}
	return otherColor
}
