# In a folder of its own, with the vaswani of this repository's .venv on the PATH; REPOSITORY names it.
export OMP_NUM_THREADS=1
python3.11 -m venv hf && hf/bin/pip install torch==2.13.0 transformers==5.23.0 sentencepiece==0.2.3
python3.11 -m venv hf4 && hf4/bin/pip install torch==2.13.0 "transformers==4.57.6" sentencepiece==0.2.3
python3.11 -m venv hf_bpe && hf_bpe/bin/pip install torch==2.13.0 transformers==5.23.0 sacremoses subword-nmt
demo=$REPOSITORY/examples/demo_en_de
vaswani prepare demo_en_de
text=data/demo_en_de/text
for python in hf hf4; do
    vaswani export "$demo" --to huggingface --python $python/bin/python --out demo-$python \
        --text $text/test.en --reference $text/test.de
done

# of pieces: the demo's text, with and without the target's spaces
mkdir text-unspaced
for subset in train valid test; do
    cp $text/$subset.en text-unspaced/
    tr -d ' ' < $text/$subset.de > text-unspaced/$subset.de
done
prepare() { vaswani prepare --source-lang en --target-lang de --subword sentencepiece --bpe 1000 "$@"; }
prepare --train $text/train --valid $text/valid --test $text/test --out data/pieces
prepare --train text-unspaced/train --valid text-unspaced/valid --test text-unspaced/test --out data/unspaced
for name in pieces unspaced; do
    sed "s#data/demo_en_de/data-bin#data/$name/data-bin#; s#runs/demo_en_de/#runs/$name/#" \
        "$REPOSITORY/configs/demo_en_de.yaml" > $name.yaml
    vaswani train $name
    vaswani average $name --last 5
    vaswani generate $name && vaswani score $name && vaswani pack $name
    vaswani export $name --to huggingface --python hf/bin/python
done

# the card's code, in environments without fairseq and this project, beside vaswani translate
hf_bpe/bin/python -I card.py demo-hf < $text/test.en > demo.there
hf/bin/python -I card.py runs/pieces/model-huggingface < data/pieces/text/test.en > pieces.there
hf/bin/python -I card.py runs/unspaced/model-huggingface < text-unspaced/test.en > unspaced.there
vaswani translate "$demo" $text/test.en | diff demo.there - && echo the same
vaswani translate runs/pieces/model data/pieces/text/test.en | diff pieces.there - && echo the same
vaswani translate runs/unspaced/model text-unspaced/test.en | diff unspaced.there - && echo the same
