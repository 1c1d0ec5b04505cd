// Project files, see segmentation/options/project.py. Masks are COCO's run lengths, column by column.

export function runs(layer, [width, height], value) {
  const lengths = [];
  let run = 0, inside = false;
  for (let column = 0; column < width; column++) {
    for (let row = 0; row < height; row++) {
      if ((layer[row * width + column] === value) !== inside) {
        lengths.push(run);
        run = 0;
        inside = !inside;
      }
      run++;
    }
  }
  return [...lengths, run];
}

export function layerOf({ size: [high, wide], add, remove }, [width, height]) {
  const stored = new Int8Array(wide * high);
  for (const [lengths, value] of [[add, 1], [remove, -1]]) {
    let place = 0;
    lengths.forEach((length, index) => {
      for (const end = place + length; place < end; place++) {
        if (index % 2) stored[place % high * wide + Math.floor(place / high)] = value;
      }
    });
    if (place !== wide * high) throw new Error("This is no project file: a mask has another size.");
  }
  const layer = new Int8Array(width * height);
  for (let i = 0; i < layer.length; i++) {
    const row = Math.floor(Math.floor(i / width) * high / height), column = Math.floor(i % width * wide / width);
    layer[i] = stored[row * wide + column];
  }
  return layer;
}
